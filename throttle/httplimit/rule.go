package httplimit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/throttle"
)

// Rule is a limit and the key that says which calls share a bucket of it.
type Rule struct {
	Limit throttle.Limit

	// Key names the bucket of a request. Required in a [Middleware]; nil in a
	// [Transport] means [ByHost].
	Key KeyFunc

	// Tiers are limits instead of Limit, by plan: at most 100. Tier returns the plan of a
	// request, and Limit holds for a plan that has no tier, such as "". A key has one bucket
	// whatever its plan, so who changes it keeps what was used; the name of each limit is that
	// of Limit, and may be left out. Either all of them are concurrency limits or none is.
	// Both are nil if all requests have one limit.
	Tiers map[string]throttle.Limit
	Tier  func(*http.Request) string
}

// limits returns Limit, and then the tiers in the order of their plans.
func (r Rule) limits() []throttle.Limit {
	all := []throttle.Limit{r.Limit}
	for _, plan := range r.plans() {
		limit := r.Tiers[plan]
		limit.Name = r.Limit.Name
		all = append(all, limit)
	}
	return all
}

func (r Rule) plans() []string { return slices.Sorted(maps.Keys(r.Tiers)) }

// KeyFunc returns the key of the bucket that a request takes its permits from. Any text
// is safe as a key, and one that is longer than 256 bytes is hashed. The number of
// different keys should be bounded: each new key starts with a full bucket.
//
// An error that is [ErrSkip] means that the rule does not apply to the request. A
// [KeyError] refuses the request with the status it names. For any other error a
// [Middleware] refuses the request with a 500 and reports the error to OnError; a
// [Transport] returns it.
type KeyFunc func(*http.Request) (key string, err error)

// ErrSkip is returned by a [KeyFunc] if its rule does not apply to a request. The other
// rules still apply; a request that all rules skip is not limited.
var ErrSkip = errors.New("httplimit: the rule does not apply")

// KeyError is returned by a [KeyFunc] to refuse a request that its sender must correct:
// its API key is missing, for example.
type KeyError struct {
	Status       int    // of the response, 400 to 499; anything else means 400
	Detail       string // for the sender, in the body of the response
	Authenticate string // the WWW-Authenticate header of the response, which a 401 needs; "" for none
}

func (e *KeyError) Error() string { return "httplimit: no key for the request: " + e.Detail }

// Everyone is a [KeyFunc] for a limit that all requests share.
func Everyone(*http.Request) (string, error) { return "", nil }

// ByUser limits by the user that the given func returns, usually the one whom an
// authentication middleware in front of this one stored in the context of the request. A
// request without a user ("") skips the rule, so add a second rule by address.
func ByUser(user func(*http.Request) string) KeyFunc {
	return func(r *http.Request) (string, error) {
		if name := user(r); name != "" {
			return name, nil
		}
		return "", ErrSkip
	}
}

// ByAPIKey limits by the API key in a header, such as X-API-Key, or by the bearer token
// in Authorization. Redis stores the SHA-256 of the API key, and not the key itself. A
// request is refused with a 401 if it has no API key or several, or another scheme than
// Bearer in Authorization.
//
// Senders can invent keys that were not checked, and each has a full bucket.
// Authenticate first, or add a rule by address.
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
		// Of two values, the one that is counted here may not be the one that is checked.
		values := r.Header[header]
		if len(values) != 1 {
			return "", missing
		}
		key := strings.Trim(values[0], " \t")
		if bearer {
			// A token has one bucket, however its scheme is spelled.
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
// "GET /users/{id}". There are as many buckets as routes, whatever paths are requested.
// Requests that match no pattern share one bucket.
//
// A mux sets the pattern of a request when it calls the handler. A middleware around the
// whole mux runs before that, so it has to ask the mux. For a middleware around single
// handlers mux is nil, and the pattern is that of the innermost mux that called it.
func ByRoute(mux *http.ServeMux) KeyFunc {
	return func(r *http.Request) (string, error) {
		if mux != nil { // r.Pattern may be that of a mux around this one
			_, pattern := mux.Handler(r)
			return pattern, nil
		}
		return r.Pattern, nil
	}
}

// ByHost limits by the host of a request's URL, with its port if there is one. Use it
// with a [Transport]; a server should not, because clients choose the Host that they send.
func ByHost(r *http.Request) (string, error) {
	if r.URL != nil && r.URL.Host != "" {
		return strings.ToLower(r.URL.Host), nil
	}
	return strings.ToLower(r.Host), nil
}

// maxTiers bounds the tiers of a rule.
const maxTiers = 100

const hashPrefix = "sha256:"

// bounded hashes a key that is too long for a Redis key.
func bounded(key string) string {
	if len(key) <= 256 && !strings.HasPrefix(key, hashPrefix) {
		return key
	}
	return hashPrefix + hashed(key) // no other key has this prefix, so keys cannot collide
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
		wrong := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("httplimit: rule %d %q: "+format, append([]any{i + 1, rule.Limit.Name}, args...)...))
		}
		if rule.Key == nil {
			wrong("Key: a rule needs one, such as ByUser, ByIP or Everyone")
		}
		switch {
		case len(rule.Tiers) > 0 && rule.Tier == nil:
			wrong("Tier: Tiers need a func that returns the plan of a request")
		case len(rule.Tiers) == 0 && rule.Tier != nil:
			wrong("Tiers: there are none for what Tier returns")
		case len(rule.Tiers) > maxTiers:
			wrong("Tiers: %d are more than %d", len(rule.Tiers), maxTiers)
		}
		for _, plan := range rule.plans() {
			tier := rule.Tiers[plan]
			if tier.Name != "" && tier.Name != rule.Limit.Name {
				wrong("Tiers: %.60q: its limit is called %.60q; leave the name out, because a key has one bucket in all tiers", plan, tier.Name)
			}
			if (tier.Algorithm == throttle.Concurrency) != (rule.Limit.Algorithm == throttle.Concurrency) {
				wrong("Tiers: %.60q: a concurrency limit cannot stand for one with a rate, nor the other way round", plan)
			}
			if max(tier.Shards, 1) != max(rule.Limit.Shards, 1) {
				wrong("Tiers: %.60q: shards: %d shards are other buckets than the %d of the rule's limit; give all tiers the same", plan, tier.Shards, rule.Limit.Shards)
			}
		}
	}
	return errors.Join(errs...)
}
