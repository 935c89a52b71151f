package sandbox

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

var codes = protocol{ok: 200, throttled: 429}

// Two limits are taken together or not at all.
func TestAccountAndTenant(t *testing.T) {
	p := newProvider(Config{Account: Limit{Rate: 1, Burst: 3}, Limit: Limit{Rate: 1, Burst: 2}, Tolerance: -1})
	p.SetLimit("free", Limit{})
	now := time.Now()
	for i, want := range []struct {
		tenant   string
		rejected bool
	}{
		{"acme", false}, {"acme", false},
		{"acme", true},  // its own limit; takes nothing of the account's
		{"free", false}, // the third of the account
		{"free", true},  // the account's
		{"other", true}, // the account's: takes nothing of its own
	} {
		v := p.arrive(now, Call{Tenant: want.tenant}, codes)
		if v.rejected != want.rejected || v.rejected != (v.wait > 0) {
			t.Fatalf("call %d: %+v; want rejected: %v", i, v, want.rejected)
		}
	}
	if level := p.tenants["other"].meter.level; level != 0 {
		t.Errorf("a refusal of the account's cost the tenant %v", level)
	}
	p.SetAccountLimit(Limit{})
	if v := p.arrive(now, Call{Tenant: "other"}, codes); v.rejected {
		t.Error("refused without a limit of the account")
	}
	want := map[string]Stats{"acme": {Accepted: 2, Rejected: 1}, "free": {Accepted: 1, Rejected: 1}, "other": {Accepted: 1, Rejected: 1}}
	for name, stats := range p.Stats() {
		if stats != want[name] {
			t.Errorf("%s: %+v; want %+v", name, stats, want[name])
		}
	}
	if got := p.Excess("acme", Limit{Rate: 1, Burst: 2}); got < 0.9 || got > 1 {
		t.Errorf("excess of three calls over a burst of two: %v", got)
	}
}

func TestFaults(t *testing.T) {
	p := newProvider(Config{})
	now := time.Now()
	status := func() int { p.arrive(now, Call{Tenant: "acme"}, codes); c := p.Calls(); return c[len(c)-1].Status }
	p.Fail(2, 503)
	for i, want := range []int{503, 503, 200} {
		if got := status(); got != want {
			t.Errorf("call %d: %d; want %d", i, got, want)
		}
	}
	if got := p.Stats()["acme"]; got != (Stats{Accepted: 1, Failed: 2}) {
		t.Errorf("%+v", got)
	}
}

func TestLogIsBounded(t *testing.T) {
	p := newProvider(Config{MaxCalls: 10})
	now := time.Now()
	release := p.Hang()
	old := p.arrive(now, Call{Attempt: "old"}, codes)
	release()
	for i := range 25 {
		p.arrive(now.Add(time.Duration(i)), Call{Tenant: "acme", Attempt: strconv.Itoa(i)}, codes)
		if got := len(p.Calls()); got > 10 {
			t.Fatalf("%d calls are kept", got)
		}
	}
	p.settle(old) // long overwritten: must touch nobody else's
	calls := p.Calls()
	for i, call := range calls {
		if call.Attempt != strconv.Itoa(15+i) || call.Status != 200 {
			t.Fatalf("call %d is %+v", i, call)
		}
	}
	if got := p.Stats()["acme"].Accepted; got != 25 {
		t.Errorf("%d counted", got)
	}
}

// The log of each provider is in the order of its times, whatever the order in
// which calls reach it.
func TestClockDoesNotRunBackwards(t *testing.T) {
	p := newProvider(Config{})
	now := time.Now()
	p.arrive(now, Call{}, codes)
	p.arrive(now.Add(-time.Second), Call{}, codes)
	if calls := p.Calls(); calls[1].At.Before(calls[0].At) {
		t.Error("it did")
	}
}

func TestHostileHeaders(t *testing.T) {
	headers := map[string]string{
		"Headgate-Tenant": "%C3%9C%00%0a", "Headgate-Job": "100%", "Headgate-Attempt": strings.Repeat("9", 10_000),
		"Idempotency-Key": strings.Repeat("k", 10_000),
	}
	got := callOf(func(name string) string { return headers[name] })
	if got.Tenant != "Ü\x00\n" || got.Job != "100%" || len(got.Attempt) != 512 || len(got.Key) != 512 {
		t.Errorf("%+v", got)
	}
}
