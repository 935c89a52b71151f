package clients

import (
	"errors"
	"fmt"
	"time"
)

// Scope is what an outcome holds back.
type Scope string

// The scopes, smallest first.
const (
	NoScope       Scope = ""         // nothing waits
	JobScope      Scope = "job"      // the one job
	EndpointScope Scope = "endpoint" // all jobs of its tenant to the same receiver
	TenantScope   Scope = "tenant"   // all jobs of its tenant in the queue, or of its own account
	AccountScope  Scope = "account"  // the jobs of all tenants that share the account
)

// Hold says which jobs wait because of an outcome, and for how long.
type Hold struct {
	Scope Scope
	For   time.Duration // 0: unknown, or permanent
	Long  string        // For in words, and what happens next
}

// Holds describes what an error holds back, by its behaviours in the order in which a queue
// checks them. It is for tables and messages; queues do not use it.
func Holds(err error, now time.Time) Hold {
	if err == nil {
		return Hold{}
	}
	if h, ok := held(err); ok {
		return h
	}
	if e, ok := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); ok {
		h := Hold{Scope: TenantScope, For: e.RetryAfter(), Long: "1 s by default"}
		if whole, ok := errors.AsType[interface {
			error
			WholeAccount() bool
		}](err); ok && whole.WholeAccount() {
			h.Scope = AccountScope
		}
		if h.For > 0 {
			h.Long = inWords(h.For)
		}
		return h
	}
	if e, ok := errors.AsType[interface {
		error
		PostponeUntil() time.Time
	}](err); ok {
		h := Hold{Scope: JobScope, For: max(e.PostponeUntil().Sub(now), 0)}
		h.Long = inWords(h.For)
		if first, ok := errors.AsType[interface {
			error
			KeepsFirst() bool
		}](err); ok && first.KeepsFirst() {
			h.Long += ", and longer each time"
		}
		return h
	}
	permanent, ok := errors.AsType[interface {
		error
		Permanent() bool
	}](err)
	unknown, sent := errors.AsType[interface {
		error
		Unknown() bool
	}](err)
	switch {
	case ok && permanent.Permanent():
		return Hold{Scope: JobScope, Long: "for good"}
	case sent && unknown.Unknown():
		return Hold{Scope: JobScope, Long: "for good, unless a repeat is safe"}
	}
	return Hold{Scope: JobScope, Long: "1 s, doubling up to 10 min"}
}

// held returns the hold of an error that has a Holds method.
func held(err error) (Hold, bool) {
	e, ok := errors.AsType[interface {
		error
		Holds() (who string, length time.Duration, named bool)
	}](err)
	if !ok {
		return Hold{}, false
	}
	who, length, named := e.Holds()
	scope, ok := map[string]Scope{OfTenant: TenantScope, OfAccount: AccountScope, OfEndpoint: EndpointScope}[who]
	if !ok {
		return Hold{}, false
	}
	h := Hold{Scope: scope, For: length, Long: inWords(length)}
	switch {
	case length == 0:
		h.Long = "1 s by default"
	case !named:
		h.Long += ", and longer each time"
	}
	return h, true
}

// inWords formats a duration in the largest unit of which it is a multiple.
func inWords(d time.Duration) string {
	d = d.Round(time.Second)
	for _, unit := range []struct {
		name string
		of   time.Duration
	}{{"h", time.Hour}, {"min", time.Minute}} {
		if d >= unit.of && d%unit.of == 0 {
			return fmt.Sprintf("%d %s", d/unit.of, unit.name)
		}
	}
	if d < time.Minute {
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return d.String()
}
