module github.com/headgate/headgate/internal/test/stripetest

go 1.26.0

require (
	github.com/headgate/headgate v0.0.0
	github.com/stripe/stripe-mock v0.203.0
)

require (
	github.com/davecgh/go-spew v1.1.0 // indirect
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/emersion/go-sasl v0.0.0-20241020182733-b788ff22d5a6 // indirect
	github.com/emersion/go-smtp v0.25.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/lestrrat-go/jspointer v0.0.0-20181205001929-82fadba7561c // indirect
	github.com/lestrrat-go/jsref v0.0.0-20181205001954-1b590508f37d // indirect
	github.com/lestrrat-go/jsschema v0.0.0-20181205002244-5c81c58ffcc3 // indirect
	github.com/lestrrat-go/jsval v0.0.0-20181205002323-20277e9befc0 // indirect
	github.com/lestrrat-go/pdebug v0.0.0-20180220043849-39f9a71bcabe // indirect
	github.com/lestrrat-go/structinfo v0.0.0-20190212233437-acd51874663b // indirect
	github.com/pkg/errors v0.8.1-0.20170505043639-c605e284fe17 // indirect
	github.com/stripe/stripe-go/v85 v85.0.0 // indirect
	github.com/xeipuuv/gojsonschema v1.2.0 // indirect
)

replace github.com/headgate/headgate => ../../..
