package httplimit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/headgate/headgate/throttle"
)

// Rule is a limit, and whose calls share one bucket of it.
type Rule struct {
	Limit throttle.Limit

	// Key names the bucket of a request. Required in a [Middleware]; nil in a
	// [Transport] means [ByHost].
	Key KeyFunc
}

// KeyFunc names the bucket that a request takes its permits from. Any text is
// safe as a key, and one that is longer than 256 bytes is hashed; but what it is
// made of must be bounded, or each request gets a bucket of its own.
//
// [ErrSkip] says that the rule does not apply to the request. A [KeyError] refuses
// the request with the status it names. Any other error is the program's own:
// the request is refused with a 500, and the error reported.
type KeyFunc func(*http.Request) (key string, err error)

// ErrSkip is returned by a [KeyFunc] whose rule does not apply to a request. The
// other rules still do; a request that all rules skip is not limited.
var ErrSkip = errors.New("httplimit: the rule does not apply")

// KeyError refuses a request for which there is no key, through its sender's
// fault: a missing API key, for example.
type KeyError struct {
	Status       int    // of the answer, 400 to 499; anything else means 400
	Detail       string // for the sender, in the answer's body
	Authenticate string // the answer's WWW-Authenticate header, which a 401 has to have; "": none
}

func (e *KeyError) Error() string { return "no key for the request: " + e.Detail }

// Everyone is a key that all requests share, for a limit on the whole server.
func Everyone(*http.Request) (string, error) { return "", nil }

// ByUser limits by what user says: usually who an authentication middleware in
// front of this one found, from the request's context. The rule is skipped for
// a request without a user (""), so give it a second rule by address.
func ByUser(user func(*http.Request) string) KeyFunc {
	return func(r *http.Request) (string, error) {
		if name := user(r); name != "" {
			return name, nil
		}
		return "", ErrSkip
	}
}

// ByAPIKey limits by the API key in a header, such as X-API-Key, or by the
// bearer token in Authorization. What becomes a part of a Redis key is its
// SHA-256 in hexadecimal; the API key itself is written nowhere. A request
// without it, with two of them, or with another scheme than Bearer in
// Authorization, is refused with a 401.
//
// A key that was not checked is whatever its sender made up, and each has a
// full bucket. Authenticate first, or add a rule by address.
func ByAPIKey(header string) KeyFunc {
	header = http.CanonicalHeaderKey(header)
	bearer := header == "Authorization"
	missing := &KeyError{
		Status:       http.StatusUnauthorized,
		Detail:       "The request needs one API key, in the header " + header + ".",
		Authenticate: "ApiKey name=" + strconv.Quote(header),
	}
	if bearer {
		missing.Detail = "The request needs one bearer token, in the header Authorization."
		missing.Authenticate = "Bearer"
	}
	return func(r *http.Request) (string, error) {
		// Two are not one: what is counted here might not be what is checked elsewhere.
		values := r.Header[header]
		if len(values) != 1 {
			return "", missing
		}
		key := strings.Trim(values[0], " \t")
		if bearer {
			// One token has one bucket, however its scheme is spelled.
			scheme, token, _ := strings.Cut(key, " ")
			if key = strings.Trim(token, " \t"); !strings.EqualFold(scheme, "Bearer") {
				key = ""
			}
		}
		if key == "" {
			return "", missing
		}
		return hashed(key), nil
	}
}

// ByRoute limits by the [http.ServeMux] pattern that a request matches, such as
// "GET /users/{id}": as many buckets as there are routes, whatever paths are
// asked for. All requests that match none share one bucket.
//
// A mux sets the pattern when it hands a request on. A middleware around the
// whole mux comes before that, so it needs the mux to ask; one around single
// handlers does not, and mux may be nil.
func ByRoute(mux *http.ServeMux) KeyFunc {
	return func(r *http.Request) (string, error) {
		if r.Pattern == "" && mux != nil {
			_, pattern := mux.Handler(r)
			return pattern, nil
		}
		return r.Pattern, nil
	}
}

// ByHost limits by the host that a request is for, with its port if it names
// one. It is for a [Transport]: what a server is sent as Host is its clients'
// choice.
func ByHost(r *http.Request) (string, error) {
	if r.URL != nil && r.URL.Host != "" {
		return strings.ToLower(r.URL.Host), nil
	}
	return strings.ToLower(r.Host), nil
}

const hashPrefix = "sha256:"

// bounded keeps a long key from being a long Redis key.
func bounded(key string) string {
	if len(key) <= 256 && !strings.HasPrefix(key, hashPrefix) {
		return key
	}
	return hashPrefix + hashed(key) // nothing else has this prefix, so no two keys meet
}

func hashed(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

func checkRules(rules []Rule) error {
	if len(rules) == 0 {
		return errors.New("httplimit: Rules: at least one is needed")
	}
	var errs []error
	for i, rule := range rules {
		if rule.Key == nil {
			errs = append(errs, fmt.Errorf("httplimit: rule %d %q: Key: a rule needs one, such as ByUser, ByIP or Everyone", i+1, rule.Limit.Name))
		}
	}
	return errors.Join(errs...)
}
