module github.com/headgate/headgate/bench/limiters

go 1.26.0

replace github.com/headgate/headgate => ../..

require (
	github.com/go-redis/redis_rate/v10 v10.0.1
	github.com/headgate/headgate v0.0.0-00010101000000-000000000000
	github.com/redis/go-redis/v9 v9.22.0
	github.com/throttled/throttled/v2 v2.15.0
	github.com/ulule/limiter/v3 v3.11.2
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
