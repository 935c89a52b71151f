package main

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// demoKinds are the kinds of jobs of the demo; each has a queue of its name.
var demoKinds = []string{"webhook", "email", "ai", "payment"}

// demoLimit is a limit of the demo that is to be used up, and what tells of it.
type demoLimit struct {
	kind, tenant string // tenant "": the account's, shared by all
	unit         string // "": calls
	rate         throttle.Rate
	burst        int64
}

// Those whose prompts are long run into the limit of tokens, the others into that
// of calls: both have the same two.
var (
	aiCalls  = throttle.PerSecond(15)
	aiTokens = throttle.Rate{Count: 60_000, Period: time.Minute}
)

// aiBurst is half a second's tokens: small enough that the limit binds at once.
const aiBurst = 500

var bindingLimits = []demoLimit{
	{"webhook", "acme", "", throttle.PerSecond(50), 1},
	{"webhook", "globex", "", throttle.PerSecond(25), 1},
	{"email", "initech", "", throttle.PerSecond(20), 1},
	{"ai", "hooli", "tokens", aiTokens, aiBurst},
	{"ai", "umbrella", "", aiCalls, 1},
	{"payment", "", "", throttle.PerSecond(30), 1},
}

func (l demoLimit) perSecond() float64 { return float64(l.rate.Count) / l.rate.Period.Seconds() }

// per is a rate with what it counts, as in 15 calls/s.
func per(rate throttle.Rate, unit string) string {
	return strings.Replace(rate.String(), "/", " "+unit+"/", 1)
}

// who has the limit, in a word.
func (l demoLimit) who() string {
	if l.tenant == "" {
		return "account"
	}
	return l.tenant
}

// demoLimits are those limits, and 10/s for any other tenant: what a second
// terminal enqueues is shaped, too.
func demoLimits() limits.Set {
	tenant := func(name, unit string, rate throttle.Rate, burst int64) limits.Limit {
		return limits.Limit{Per: []string{"tenant"}, Unit: unit, Name: name, Algorithm: throttle.TokenBucket, Rate: rate, Burst: burst}
	}
	set := limits.Set{
		Queues: map[string]limits.Queue{
			"webhook": {Kinds: []string{"webhook"}, Limits: []limits.Limit{tenant("tenant", "", throttle.PerSecond(10), 1)}},
			"email":   {Kinds: []string{"email"}, Limits: []limits.Limit{tenant("tenant", "", throttle.PerSecond(10), 1)}},
			"ai": {Kinds: []string{"ai"}, Limits: []limits.Limit{
				tenant("requests", "", aiCalls, 1),
				tenant("tokens", "tokens", aiTokens, aiBurst),
			}},
		},
		Tenants: map[string]limits.Tenant{},
	}
	for _, l := range bindingLimits {
		switch l.kind {
		case "webhook", "email":
			set.Tenants[l.tenant] = limits.Tenant{Limits: map[string]map[string]limits.Change{l.kind: {"tenant": {Rate: &l.rate}}}}
		case "payment":
			set.Queues["payment"] = limits.Queue{Kinds: []string{"payment"}, Limits: []limits.Limit{{Name: "account", Algorithm: throttle.LeakyBucket, Rate: l.rate}}}
		}
	}
	for name, q := range set.Queues {
		q.Conformance = true
		set.Queues[name] = q
	}
	return set
}

// demoProviders are the servers that jobs go to. Each polices its own limits, which are
// those of the queue, and forgives calls that come up to 5 ms too early, as the queue
// promises; it knows nothing of the queue.
type demoProviders struct {
	web    *sandbox.HTTP
	post   *sandbox.SMTP
	models *sandbox.AI
	stripe *sandbox.Stripe
}

func startProviders() (p *demoProviders, err error) {
	p = &demoProviders{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	allow := func(rate throttle.Rate, burst int) sandbox.Limit {
		return sandbox.Limit{Rate: demoLimit{rate: rate}.perSecond(), Burst: burst}
	}
	if p.web, err = sandbox.NewHTTP(); err != nil {
		return p, err
	}
	if p.post, err = sandbox.NewSMTP(); err != nil {
		return p, err
	}
	if p.models, err = sandbox.NewOpenAI(sandbox.AIConfig{
		Config: sandbox.Config{Limit: allow(aiCalls, 1)}, Tokens: allow(aiTokens, aiBurst), Completion: 30,
	}); err != nil {
		return p, err
	}
	p.models.Slow(100 * time.Millisecond) // models think
	if p.stripe, err = sandbox.NewStripe(); err != nil {
		return p, err
	}
	for _, l := range bindingLimits {
		switch l.kind {
		case "webhook":
			p.web.SetLimit(l.tenant, allow(l.rate, int(l.burst)))
		case "email":
			p.post.SetLimit(l.tenant, allow(l.rate, int(l.burst)))
		case "payment":
			p.stripe.SetAccountLimit(allow(l.rate, int(l.burst)))
		}
	}
	return p, nil
}

func (p *demoProviders) close() {
	if p.web != nil {
		p.web.Close()
	}
	if p.post != nil {
		p.post.Close()
	}
	if p.models != nil {
		p.models.Close()
	}
	if p.stripe != nil {
		p.stripe.Close()
	}
}

// of is the provider of a kind, as far as it is the same for all.
func (p *demoProviders) of(kind string) *sandbox.Provider {
	switch kind {
	case "webhook":
		return p.web.Provider
	case "email":
		return p.post.Provider
	case "ai":
		return p.models.Provider
	}
	return p.stripe.Provider
}

// describe tells a new user what is there.
func (p *demoProviders) describe(out io.Writer, page, redisURL, redisKind string) {
	allowed := map[string][]string{}
	for _, l := range bindingLimits {
		allowed[l.kind] = append(allowed[l.kind], l.who()+" "+per(l.rate, "calls"))
	}
	fmt.Fprintf(out, "Headgate, to try out: open %s\n\nEverything here runs on this machine and is deleted when the demo ends.\n\n", page)
	for _, line := range [][3]string{
		{"Redis", redisURL, "(" + redisKind + ")"},
		{"webhook", p.web.URL(), "allows " + strings.Join(allowed["webhook"], ", ")},
		{"email", "smtp://" + p.post.Addr(), "allows " + strings.Join(allowed["email"], ", ")},
		{"ai", p.models.URL() + "/v1", "allows each tenant " + per(aiCalls, "calls") + ", " + per(aiTokens, "tokens")},
		{"payment", p.stripe.URL(), "allows the " + strings.Join(allowed["payment"], ", ")},
	} {
		fmt.Fprintf(out, "  %-8s  %-26s  %s\n", line[0], line[1], line[2])
	}
	fmt.Fprintf(out, `
From a second terminal:
  go run ./cmd/enqueue send --redis %[1]s --kind webhook --tenant you --payload '{"url":"%[2]s/hello"}'
  go run ./cmd/enqueue status --redis %[1]s

Each tenant wants a fifth more than it may have: prompts of hooli are long and run
into its tokens, umbrella's are short and run into its calls; stark and wayne share
the account. Below, once a second: sent/allowed so far, as each provider counted.

`, redisURL, p.web.URL())
}

func splitPort(addr string) (string, int) {
	host, text, _ := net.SplitHostPort(addr)
	port, _ := strconv.Atoi(text) // a listener's own address
	return host, port
}
