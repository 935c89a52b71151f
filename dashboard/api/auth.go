package api

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Actors in the audit log that are not ids of keys.
const (
	localActor = "local"  // a caller on this machine, if no keys are configured
	nobody     = "nobody" // a caller without a valid key
)

// caller is who sent a request.
type caller struct {
	key     Key      // zero: denied
	denied  *problem // why there is no valid key
	pattern string   // of the requested route; "": there is no such route
}

func (c caller) actor() string {
	if c.denied != nil {
		return nobody
	}
	return c.key.ID
}

// all reports whether the caller has access to all tenants and whole queues.
func (c caller) all() bool { return len(c.key.Tenants) == 0 }

// some reports whether the caller has access only to jobs of some tenants or kinds.
func (c caller) some() bool { return len(c.key.Tenants)+len(c.key.Kinds) > 0 }

func (c caller) mayTenant(tenant string) bool { return oneOf(c.key.Tenants, tenant) }
func (c caller) mayQueue(queue string) bool   { return oneOf(c.key.Queues, queue) }
func (c caller) mayKind(kind string) bool     { return oneOf(c.key.Kinds, kind) }

// oneOf reports whether a key that is for some names, or for all if there are none, is for a name.
func oneOf(names []string, name string) bool { return len(names) == 0 || slices.Contains(names, name) }

type callerKey struct{}

func callerOf(r *http.Request) caller {
	c, _ := r.Context().Value(callerKey{}).(caller)
	return c
}

func withCaller(r *http.Request, c caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
}

// authenticate determines the caller of a request.
func (a *API) authenticate(r *http.Request) caller {
	if a.config.Keys == nil {
		return localCaller(r)
	}
	deny := func(why, detail string) caller {
		p := newProblem(http.StatusUnauthorized, codeNoKey, "%s", detail)
		p.authenticate, p.refusal = true, why
		return caller{denied: p}
	}
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return deny("no key", "An API key is required, as in Authorization: Bearer hg_…")
	}
	scheme, token, _ := strings.Cut(strings.TrimSpace(values[0]), " ")
	token = strings.TrimSpace(token)
	if len(values) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return deny("no bearer token", "The Authorization header must have one bearer token, as in Authorization: Bearer hg_…")
	}
	key, ok := a.config.Keys().find(token)
	switch {
	case !ok:
		return deny("unknown key", "The API key is unknown.")
	case !key.Expires.IsZero() && !key.Expires.After(time.Now()):
		return deny("key "+key.ID+" has expired", "The API key has expired.")
	}
	return caller{key: key}
}

// again authenticates the caller of a long request once more, and returns what it may do now. The
// error is that it has no access any more.
func (a *API) again(r *request, scope Scope) (caller, error) {
	now := a.authenticate(r.Request)
	switch {
	case now.denied != nil:
		return now, now.denied
	case !now.key.may(scope):
		return now, noScope(scope)
	}
	return now, nil
}

// localCaller accepts only requests from this machine, and only under a loopback name: a
// remote page could resolve its own name to this machine's address.
func localCaller(r *http.Request) caller {
	deny := func(why, format string, args ...any) caller {
		p := newProblem(http.StatusForbidden, codeForbidden, format, args...)
		p.refusal = why
		return caller{denied: p}
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return deny("not on this machine", "Without API keys, only requests from this machine are accepted. Set HEADGATE_API_KEYS_FILE to a file of keys, which enqueue keys new creates.")
	}
	if !LoopbackName(r.Host) {
		return deny("host is not this machine", "Host %.100q is not a loopback name: without API keys, use localhost or 127.0.0.1.", r.Host)
	}
	if header := ProxyHeader(r.Header); header != "" {
		return deny("came through a proxy", "The request has the header %s, so it came through a proxy, and anybody may have sent it. Set HEADGATE_API_KEYS_FILE to a file of keys, which enqueue keys new creates.", header)
	}
	return caller{key: Key{ID: localActor, Scopes: []Scope{Admin}}}
}

// ProxyHeader returns the name of a header that only a proxy adds; "" if there is none.
func ProxyHeader(headers http.Header) string {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if name == "Forwarded" || name == "Via" || name == "X-Real-Ip" || strings.HasPrefix(name, "X-Forwarded-") {
			return name
		}
	}
	return ""
}

// LoopbackName reports whether a host, with or without a port, is this machine regardless of
// DNS.
func LoopbackName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
