package httplimit

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestByAPIKey(t *testing.T) {
	const hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b" // of "secret"
	tests := map[string]struct {
		header string
		sent   http.Header
		want   string // "": refused
	}{
		"key":                     {"x-api-key", http.Header{"X-Api-Key": {"secret"}}, hash},
		"spaces around it":        {"X-API-Key", http.Header{"X-Api-Key": {" secret\t"}}, hash},
		"missing":                 {"X-API-Key", http.Header{}, ""},
		"empty":                   {"X-API-Key", http.Header{"X-Api-Key": {"  "}}, ""},
		"two":                     {"X-API-Key", http.Header{"X-Api-Key": {"secret", "secret"}}, ""},
		"bearer":                  {"authorization", http.Header{"Authorization": {"Bearer secret"}}, hash},
		"bearer in other letters": {"Authorization", http.Header{"Authorization": {"bEARER   secret "}}, hash},
		"bearer without a token":  {"Authorization", http.Header{"Authorization": {"Bearer "}}, ""},
		"token without a scheme":  {"Authorization", http.Header{"Authorization": {"secret"}}, ""},
		"another scheme":          {"Authorization", http.Header{"Authorization": {"Basic secret"}}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ByAPIKey(test.header)(&http.Request{Header: test.sent})
			var fault *KeyError
			switch {
			case test.want != "" && (got != test.want || err != nil):
				t.Errorf("key %q, %v; want %q", got, err, test.want)
			case test.want == "" && (!errors.As(err, &fault) || fault.Status != 401 || fault.Authenticate == ""):
				t.Errorf("key %q, %v; want a KeyError with a challenge", got, err)
			}
		})
	}
}

func TestByUser(t *testing.T) {
	type ctxKey struct{}
	key := ByUser(func(r *http.Request) string {
		user, _ := r.Context().Value(ctxKey{}).(string)
		return user
	})
	r := httptest.NewRequest("GET", "/", nil)
	if got, err := key(r); !errors.Is(err, ErrSkip) {
		t.Errorf("nobody: %q, %v; want ErrSkip", got, err)
	}
	if got, err := key(r.WithContext(context.WithValue(t.Context(), ctxKey{}, "ann"))); got != "ann" || err != nil {
		t.Errorf("ann: %q, %v", got, err)
	}
}

func TestByRoute(t *testing.T) {
	mux := http.NewServeMux()
	var inside string
	mux.HandleFunc("GET /users/{id}", func(_ http.ResponseWriter, r *http.Request) { inside, _ = ByRoute(nil)(r) })
	mux.HandleFunc("POST /users/{id}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("example.com/", func(http.ResponseWriter, *http.Request) {})
	tests := []struct{ method, target, want string }{
		{"GET", "/users/1", "GET /users/{id}"},
		{"GET", "/users/2?x=y", "GET /users/{id}"},
		{"HEAD", "/users/2", "GET /users/{id}"},
		{"POST", "/users/2", "POST /users/{id}"},
		{"DELETE", "/users/2", ""},
		{"GET", "/random/1", ""},
		{"GET", "/random/2", ""},
		{"GET", "http://example.com/anything", "example.com/"},
	}
	for _, test := range tests {
		r := httptest.NewRequest(test.method, test.target, nil)
		if !strings.HasPrefix(test.target, "http") {
			r.Host = "other"
		}
		if got, err := ByRoute(mux)(r); got != test.want || err != nil {
			t.Errorf("%s %s around the mux: %q, %v; want %q", test.method, test.target, got, err, test.want)
		}
		if r.Pattern != "" {
			t.Errorf("%s %s: ByRoute set the pattern", test.method, test.target)
		}
		if got, _ := ByRoute(nil)(r); got != "" {
			t.Errorf("%s %s without a mux: %q; want no path in it", test.method, test.target, got)
		}
	}
	r := httptest.NewRequest("GET", "/users/1", nil)
	r.Host = "other"
	mux.ServeHTTP(httptest.NewRecorder(), r)
	if inside != "GET /users/{id}" {
		t.Errorf("inside of the mux: %q", inside)
	}
	// Of a mux within another one, around which the middleware is, the routes are meant.
	outer, around := http.NewServeMux(), ""
	outer.HandleFunc("/users/", func(_ http.ResponseWriter, r *http.Request) { around, _ = ByRoute(mux)(r) })
	r = httptest.NewRequest("POST", "/users/1", nil)
	r.Host = "other"
	outer.ServeHTTP(httptest.NewRecorder(), r)
	if around != "POST /users/{id}" {
		t.Errorf("around a mux within another one: %q", around)
	}
}

func TestByHost(t *testing.T) {
	for _, test := range []struct{ url, host, want string }{
		{"https://API.Example.com/v1", "", "api.example.com"},
		{"https://api.example.com:8443/v1", "other", "api.example.com:8443"},
		{"/v1", "Example.com", "example.com"},
	} {
		r, err := http.NewRequest("GET", test.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = test.host
		if got, err := ByHost(r); got != test.want || err != nil {
			t.Errorf("ByHost of %q for %q = %q, %v; want %q", test.url, test.host, got, err, test.want)
		}
	}
	if _, err := ByHost(&http.Request{}); err != nil {
		t.Errorf("no URL: %v", err)
	}
}

func TestBoundedKeys(t *testing.T) {
	seen := map[string]string{}
	long := strings.Repeat("x", 257)
	for _, key := range []string{"", "ann", long[:256], long, long + "y", bounded(long), bounded(bounded(long)), "sha256:"} {
		short := bounded(key)
		if len(short) > 256 {
			t.Errorf("bounded(%.10q...) has %d bytes", key, len(short))
		}
		if other, taken := seen[short]; taken {
			t.Errorf("%.80q and %.80q share a key", key, other)
		}
		seen[short] = key
	}
	if bounded("ann") != "ann" {
		t.Error("a short key is not what it was")
	}
}
