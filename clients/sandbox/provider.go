package sandbox

import (
	"cmp"
	"crypto/tls"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/clients"
)

// Config configures a provider. The zero Config accepts all calls.
type Config struct {
	Limit   Limit // of each tenant without [Provider.SetLimit]; zero: none
	Account Limit // of all tenants together; zero: none

	// Tolerance is how much earlier than its limit a call may arrive. 0 means 5 ms; negative means
	// none.
	Tolerance time.Duration

	// MaxCalls is the number of latest calls that the log keeps. 0 means 200,000.
	MaxCalls int

	// Answer answers the calls that [HTTP] accepts. nil means 200 and {"ok":true}.
	Answer http.Handler

	// ThrottleCode is the reply of [SMTP] to a message that exceeds a limit: 450, the default, or
	// 421, which ends the connection.
	ThrottleCode int

	// Username and Password are required by [SMTP]; "" means no authentication. The Password is
	// also the secret key that [Stripe] requires; "" means any key.
	Username, Password string

	// TLS is for STARTTLS of [SMTP]. nil means that STARTTLS is not offered.
	TLS *tls.Config
}

// Provider is the part of a provider that is independent of its protocol.
type Provider struct {
	tolerance time.Duration
	limit     Limit
	done      chan struct{} // closed by close

	mu      sync.Mutex
	latest  time.Time // arrival of the latest call
	account meter
	tenants map[string]*tenant
	faults  faults
	log     calls
}

type tenant struct {
	meter meter
	stats Stats
}

func newProvider(config Config) *Provider {
	return &Provider{
		tolerance: max(cmp.Or(config.Tolerance, 5*time.Millisecond), 0),
		limit:     config.Limit.normal(),
		done:      make(chan struct{}),
		account:   meter{limit: config.Account.normal()},
		tenants:   map[string]*tenant{},
		log:       calls{most: max(cmp.Or(config.MaxCalls, 200_000), 1)},
	}
}

// one returns the Config of a constructor's optional argument.
func one(config []Config) Config {
	if len(config) == 0 {
		return Config{}
	}
	return config[0]
}

// SetLimit sets the limit of a tenant; zero: none. Permits that are used stay used.
func (p *Provider) SetLimit(name string, limit Limit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tenant(name).meter.change(limit, p.clock(time.Now()))
}

// SetAccountLimit sets the limit of all tenants together; zero: none. Permits that are used stay
// used.
func (p *Provider) SetAccountLimit(limit Limit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account.change(limit, p.clock(time.Now()))
}

// Stats returns the counts of each tenant since the start.
func (p *Provider) Stats() map[string]Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	stats := make(map[string]Stats, len(p.tenants))
	for name, t := range p.tenants {
		if t.stats != (Stats{}) {
			stats[name] = t.stats
		}
	}
	return stats
}

// Calls returns the latest calls in the order of their arrival, at most Config.MaxCalls.
func (p *Provider) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.all()
}

// Excess returns the [Excess] of a tenant's calls in the log.
func (p *Provider) Excess(tenant string, limit Limit) float64 {
	return Excess(OfTenant(p.Calls(), tenant), limit)
}

// visit is the decision about one call on its arrival.
type visit struct {
	seq      int
	rejected bool
	wait     time.Duration // if rejected: until a call would be admitted
	struck   bool          // fails on demand
	status   int           // if struck
	ok       int           // the status of an accepted call
	hanging  <-chan struct{}
	latency  time.Duration
}

// protocol has the statuses of the decisions in a protocol.
type protocol struct{ ok, throttled int }

// arrive decides about a call and logs it. c has the headers of the call; at is when it arrived.
func (p *Provider) arrive(at time.Time, c Call, codes protocol) visit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.decide(p.clock(at), c, codes)
}

// charge is what a call uses of a meter with another unit.
type charge struct {
	meter *meter
	n     float64
}

// decide is arrive with the lock held, and with charges in addition to the call itself.
func (p *Provider) decide(at time.Time, c Call, codes protocol, charges ...charge) visit {
	t := p.tenant(c.Tenant)
	v := visit{ok: codes.ok, latency: p.faults.latency}

	// Check all limits before charging any: a refused call must not be charged to the others.
	tenantOK, tenantWait := t.meter.admits(at, p.tolerance)
	accountOK, accountWait := p.account.admits(at, p.tolerance)
	within := tenantOK && accountOK
	v.wait = max(tenantWait, accountWait)
	for _, c := range charges {
		ok, wait := c.meter.spares(at, p.tolerance, c.n)
		within, v.wait = within && ok, max(v.wait, wait)
	}
	c.At = at
	if !within {
		t.stats.Rejected++
		v.rejected = true
		c.Status = codes.throttled
		v.seq = p.log.add(c)
		return v
	}
	t.meter.add(at)
	p.account.add(at)
	for _, c := range charges {
		c.meter.use(at, c.n)
	}
	v.hanging = p.faults.hanging
	if v.status, v.struck = p.faults.strike(); v.struck {
		t.stats.Failed++
		c.Status = v.status
	} else {
		t.stats.Accepted++
		c.Accepted = true
		c.Status = codes.ok
	}
	if v.hanging != nil {
		c.Status = NoAnswer
	}
	v.seq = p.log.add(c)
	return v
}

// settle logs the status of a call that no longer hangs.
func (p *Provider) settle(v visit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.log.at(v.seq); c != nil {
		c.Status = v.ok
		if v.struck {
			c.Status = v.status
		}
	}
}

// clock keeps the time from going backwards: calls that arrive at about the same time may get
// the lock in another order.
func (p *Provider) clock(t time.Time) time.Time {
	if t.After(p.latest) {
		p.latest = t
	}
	return p.latest
}

func (p *Provider) tenant(name string) *tenant {
	t := p.tenants[name]
	if t == nil {
		t = &tenant{meter: meter{limit: p.limit}}
		p.tenants[name] = t
	}
	return t
}

// callOf returns a Call with the headers of a request.
func callOf(header func(name string) string) Call {
	text := func(name string) string { return clip(clients.UnescapeHeader(header(name))) }
	return Call{
		Tenant:  text(clients.HeaderTenant),
		Job:     text(clients.HeaderJob),
		Attempt: text(clients.HeaderAttempt),
		Key:     clip(header(clients.HeaderIdempotencyKey)),
	}
}
