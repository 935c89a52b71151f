package api

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Names in the audit that no key can have.
const (
	localActor = "local"  // whoever is on this machine, where no keys are needed
	nobody     = "nobody" // who had no key, or none that is valid
)

// caller is who asks, as far as the API found out.
type caller struct {
	key     Key      // zero: nobody
	denied  *problem // why there is no key
	pattern string   // of the route that is asked for; "": there is none
}

func (c caller) actor() string {
	if c.denied != nil {
		return nobody
	}
	return c.key.ID
}

// all tells whether the caller is for all tenants, and for whole queues.
func (c caller) all() bool { return len(c.key.Tenants) == 0 }

func (c caller) mayTenant(tenant string) bool {
	return c.all() || slices.Contains(c.key.Tenants, tenant)
}

type callerKey struct{}

func callerOf(r *http.Request) caller {
	c, _ := r.Context().Value(callerKey{}).(caller)
	return c
}

func withCaller(r *http.Request, c caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
}

// authenticate finds out who asks.
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
		return deny("no key", "The request needs an API key, as in: Authorization: Bearer hg_…")
	}
	scheme, token, _ := strings.Cut(strings.TrimSpace(values[0]), " ")
	token = strings.TrimSpace(token)
	if len(values) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return deny("no bearer token", "The header Authorization is not one bearer token, as in: Authorization: Bearer hg_…")
	}
	key, ok := a.config.Keys().find(token)
	switch {
	case !ok:
		return deny("unknown key", "The API key is not known.")
	case !key.Expires.IsZero() && !key.Expires.After(time.Now()):
		return deny("key "+key.ID+" has expired", "The API key has expired.")
	}
	return caller{key: key}
}

// localCaller lets in who is on this machine, and nobody else: not a page from
// elsewhere either that gives its own name this machine's address.
func localCaller(r *http.Request) caller {
	deny := func(why, format string, args ...any) caller {
		p := newProblem(http.StatusForbidden, codeForbidden, format, args...)
		p.refusal = why
		return caller{denied: p}
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return deny("not on this machine", "Without API keys only this machine may ask. HEADGATE_API_KEYS_FILE names a file of keys; enqueue keys new makes one.")
	}
	if !LoopbackName(r.Host) {
		return deny("host is not this machine", "Without API keys this machine has to be asked for as localhost or 127.0.0.1, not as %.100q.", r.Host)
	}
	return caller{key: Key{ID: localActor, Scopes: []Scope{Admin}}}
}

// LoopbackName tells whether a host, with or without a port, is this machine
// whatever a name server says.
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
