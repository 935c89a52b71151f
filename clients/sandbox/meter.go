// Package sandbox stands in for providers, in process: an HTTP and an SMTP
// server that police their own limits as real ones do, count every violation,
// and fail when they are told to.
//
// It is written without package throttle, so that it can be its judge.
package sandbox

import (
	"maps"
	"sync"
	"time"
)

// Limit is what a provider allows: any two calls i ≤ j satisfy
// count(i..j) ≤ Burst + Rate × (t_j − t_i + tolerance).
type Limit struct {
	Rate  float64 // calls a second; 0: unlimited
	Burst int     // calls at once; 0 means 1
}

// Tolerance is what a provider lets pass for the jitter of clocks and networks.
const Tolerance = 5 * time.Millisecond

// Call is one call as the provider saw it.
type Call struct {
	At       time.Time // of arrival
	Tenant   string
	Job      string
	Attempt  string
	Key      string // idempotency key
	Status   int    // HTTP's, or SMTP's reply code; 0: no answer was given
	Accepted bool
}

// Stats counts a tenant's calls.
type Stats struct {
	Accepted int // within the limit, and answered with success
	Rejected int // over the limit: each is a violation of the caller's
	Failed   int // failed on request
}

// mostCalls bounds the log of calls; beyond it calls are only counted.
const mostCalls = 500_000

// meter polices limits and keeps the books. The zero value has no limits.
type meter struct {
	mu      sync.Mutex
	limits  map[string]Limit
	account Limit
	// The theoretical arrival time of each tenant's next call, and of the account's.
	arrivals map[string]time.Time
	shared   time.Time
	stats    map[string]Stats
	calls    []Call
}

// SetLimit limits one tenant from now on.
func (m *meter) SetLimit(tenant string, limit Limit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.limits == nil {
		m.limits = map[string]Limit{}
	}
	m.limits[tenant] = limit
}

// SetAccountLimit limits all tenants together from now on.
func (m *meter) SetAccountLimit(limit Limit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account = limit
}

// Stats counts the calls of each tenant so far.
func (m *meter) Stats() map[string]Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[string]Stats, len(m.stats))
	maps.Copy(out, m.stats)
	return out
}

// Calls is the log of calls, in the order of their answers.
func (m *meter) Calls() []Call {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Call(nil), m.calls...)
}

// conform is virtual scheduling (ITU-T I.371): the call conforms if it is not
// earlier than its theoretical arrival time less the burst and the tolerance.
// It returns the next arrival time, or how long to wait.
func conform(limit Limit, arrival, now time.Time) (next time.Time, wait time.Duration) {
	if limit.Rate <= 0 {
		return arrival, 0
	}
	interval := time.Duration(float64(time.Second) / limit.Rate)
	early := time.Duration(max(limit.Burst, 1)-1)*interval + Tolerance
	if arrival.Before(now) {
		arrival = now
	}
	if wait := arrival.Sub(now) - early; wait > 0 {
		return arrival, wait
	}
	return arrival.Add(interval), 0
}

// admit polices a call that arrived at now; wait > 0: it was refused, and
// changed nothing.
func (m *meter) admit(tenant string, now time.Time) (wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	own, ownWait := conform(m.limits[tenant], m.arrivals[tenant], now)
	shared, sharedWait := conform(m.account, m.shared, now)
	if wait := max(ownWait, sharedWait); wait > 0 {
		return wait
	}
	if m.arrivals == nil {
		m.arrivals = map[string]time.Time{}
	}
	m.arrivals[tenant], m.shared = own, shared
	return 0
}

// record books a call with its answer.
func (m *meter) record(call Call, rejected bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stats == nil {
		m.stats = map[string]Stats{}
	}
	s := m.stats[call.Tenant]
	switch {
	case call.Accepted:
		s.Accepted++
	case rejected:
		s.Rejected++
	default:
		s.Failed++
	}
	m.stats[call.Tenant] = s
	if len(m.calls) < mostCalls {
		m.calls = append(m.calls, call)
	}
}
