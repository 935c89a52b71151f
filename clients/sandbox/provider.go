package sandbox

import (
	"cmp"
	"crypto/tls"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/clients"
)

// Config says how a provider behaves. The zero Config accepts everything.
type Config struct {
	Limit   Limit // of each tenant that [Provider.SetLimit] did not name; zero: none
	Account Limit // of all tenants together; zero: none

	// Tolerance is how much earlier than its limit a call may come. 0 means 5 ms;
	// negative means none.
	Tolerance time.Duration

	// MaxCalls is how many of the latest calls the log keeps. 0 means 200,000.
	MaxCalls int

	// Answer answers the calls that [HTTP] accepts. nil means 200 and {"ok":true}.
	Answer http.Handler

	// ThrottleCode is the reply of [SMTP] to a message over a limit, 450 (the
	// default) or 421, which ends the connection.
	ThrottleCode int

	// Username and Password are what [SMTP] wants to be told first. "" means that
	// it asks for nothing. [Stripe] wants the Password as its secret key; "" means
	// that any key will do.
	Username, Password string

	// TLS is for STARTTLS of [SMTP]. nil means that it is not offered.
	TLS *tls.Config
}

// Provider is the part of a provider that knows nothing of its protocol.
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

// one is the config of a constructor's optional argument.
func one(config []Config) Config {
	if len(config) == 0 {
		return Config{}
	}
	return config[0]
}

// SetLimit gives a tenant a limit of its own from now on; zero: none. What the
// tenant has used of the old limit stays used.
func (p *Provider) SetLimit(name string, limit Limit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tenant(name).meter.change(limit, p.clock(time.Now()))
}

// SetAccountLimit changes the limit of all tenants together; zero: none. What
// was used of the old limit stays used.
func (p *Provider) SetAccountLimit(limit Limit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.account.change(limit, p.clock(time.Now()))
}

// Stats are the counts of each tenant that called, since the start.
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

// Calls are the latest calls in the order of their arrival, at most
// Config.MaxCalls.
func (p *Provider) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.all()
}

// Excess is [Excess] of what arrived from a tenant and is still in the log.
func (p *Provider) Excess(tenant string, limit Limit) float64 {
	return Excess(OfTenant(p.Calls(), tenant), limit)
}

// AccountExcess is [Excess] of everything that is still in the log.
func (p *Provider) AccountExcess(limit Limit) float64 {
	return Excess(p.Calls(), limit)
}

// visit is what the provider decided about one call when it arrived.
type visit struct {
	seq      int
	rejected bool
	wait     time.Duration // when rejected: until a call would be admitted
	struck   bool          // by a fault
	status   int           // when struck
	ok       int           // the status of an accepted call
	hanging  <-chan struct{}
	latency  time.Duration
}

// protocol is what the same decision is called on the wire.
type protocol struct{ ok, throttled int }

// arrive decides about a call and writes it down. c holds what the call says of
// itself; at is when it arrived.
func (p *Provider) arrive(at time.Time, c Call, codes protocol) visit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.decide(p.clock(at), c, codes)
}

// charge is what a call uses of a meter of another unit.
type charge struct {
	meter *meter
	n     float64
}

// decide is arrive with the lock held and charges besides the call itself.
func (p *Provider) decide(at time.Time, c Call, codes protocol, charges ...charge) visit {
	t := p.tenant(c.Tenant)
	v := visit{ok: codes.ok, latency: p.faults.latency}

	// All limits are asked before any is used: a call that one of them refuses
	// must cost nothing of the others.
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

// settle writes down the status of a call that hangs no more.
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

// clock keeps time from running backwards: calls that arrived at the same time
// may reach the lock in another order.
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

// callOf reads what a call says of itself from its headers.
func callOf(header func(name string) string) Call {
	text := func(name string) string { return clip(clients.UnescapeHeader(header(name))) }
	return Call{
		Tenant:  text(clients.HeaderTenant),
		Job:     text(clients.HeaderJob),
		Attempt: text(clients.HeaderAttempt),
		Key:     clip(header(clients.HeaderIdempotencyKey)),
	}
}
