package queue

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// transported is a provider and a client of it whose calls are those of tenants of a rig's queue.
func (r *rig) transported(t *testing.T, answer http.HandlerFunc) (server *httptest.Server, get func(tenant string) (*http.Response, error)) {
	t.Helper()
	server = httptest.NewServer(answer)
	t.Cleanup(server.Close)
	base := server.Client().Transport
	client := &http.Client{Transport: &Transport{Client: r.client, Base: base, MaxWait: 0, Job: func(request *http.Request) (Job, error) {
		tenant := request.Header.Get("Tenant")
		if tenant == "nobody" {
			return Job{}, errors.New("who is that?")
		}
		return r.call(tenant), nil
	}, Quotas: func(response *http.Response) []Quota {
		var q Quota
		if _, err := fmt.Sscan(response.Header.Get("Monthly"), &q.Limit); err != nil {
			return nil
		}
		q.Window, q.Of = maxQuotaWindow, QuotaOfTenant
		return []Quota{q}
	}}}
	return server, func(tenant string) (*http.Response, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Tenant", tenant)
		return client.Do(request)
	}
}

// TestTransport: a call goes if the limits admit it, and otherwise ends in why not; a provider that asks for a pause
// pauses the tenant, for jobs, too.
func TestTransport(t *testing.T) {
	t.Parallel()
	daily := limits.Limit{Name: "daily", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 1000, Period: 24 * time.Hour}, Location: noon(t)}
	slows := perHour("slows", 9)
	slows.Adaptive = true
	set := limitsOf(perHour("tenant", 2), daily, slows)
	set.Tenants = map[string]limits.Tenant{"b": {SendWindow: always(t)}}
	r := startRig(t, 0, set, nil)
	asked, pause := 0, false
	_, get := r.transported(t, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		if pause {
			w.Header().Set("Retry-After", "1800")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	for range 2 {
		response, err := get("a")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	}
	var refused *RefusedError
	if _, err := get("a"); !errors.As(err, &refused) || refused.Limit != "tenant" || asked != 2 {
		t.Errorf("%v after %d calls", err, asked)
	}
	if _, err := get("nobody"); err == nil || !strings.Contains(err.Error(), "who is that?") || asked != 2 {
		t.Errorf("%v after %d calls", err, asked)
	}
	pause = true
	response, err := get("b")
	if err != nil || response.StatusCode != http.StatusTooManyRequests {
		t.Fatalf("%v, %v", response, err)
	}
	response.Body.Close()
	if _, err := get("b"); !errors.As(err, &refused) || refused.Reason != ParkedByPause || refused.RetryAfter < 29*time.Minute {
		t.Errorf("after a 429: %v", err)
	}
	// As after a job's call: its buckets stop, too, and an adaptive limit falls.
	client := r.server.Client()
	if lowered := redistest.Keys(t, client, store.Key(r.queue, "adapt:*")); len(lowered) != 1 || !strings.HasSuffix(lowered[0], "adapt:slows:b") {
		t.Errorf("lowered: %v", lowered)
	}
	if bucket := client.Get(t.Context(), store.Key(r.queue, "b:tenant:b")).Val(); !strings.Contains(bucket, " !") {
		t.Errorf("the bucket goes on: %s", bucket)
	}
	pauses, err := inspect.Pauses(t.Context(), r.server.Client(), r.queue)
	if err != nil || len(pauses) != 1 || pauses[0].Tenant != "b" || pauses[0].By != "provider" || !strings.Contains(pauses[0].Reason, "status 429") {
		t.Errorf("pauses: %+v, %v", pauses, err)
	}
}

// TestTransportHears: what the answer to a call says of the provider's limits counts for the tenant's jobs and calls, and
// for nobody else's, and what is no quota is an error that changes nothing.
func TestTransportHears(t *testing.T) {
	t.Parallel()
	adaptive := limits.Limit{Name: "adaptive", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 1024, Period: maxQuotaWindow}, Per: []string{"tenant"}, Adaptive: true}
	r := startRig(t, 0, limitsOf(adaptive), nil)
	monthly := ""
	_, get := r.transported(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Monthly", monthly) })
	var refused *RefusedError
	for _, monthly = range []string{"", "3", "3", ""} {
		for _, tenant := range []string{"a", "b"} {
			if monthly != "" && tenant == "b" {
				continue
			}
			response, err := get(tenant)
			if err != nil {
				if monthly == "" && errors.As(err, &refused) && refused.Limit == "adaptive" && tenant == "a" {
					continue // the fourth
				}
				t.Fatal(err)
			}
			response.Body.Close()
			if monthly != "" {
				until(t, "heard", func() bool { return len(redistest.Keys(t, r.server.Client(), store.Key(r.queue, "adapt:*"))) == 1 })
			}
		}
	}
	if refused == nil {
		t.Error("a provider that admits three calls a month had a fourth")
	}
	p, err := r.client.Take(t.Context(), r.call("b"))
	if err != nil {
		t.Fatal(err)
	}
	before := redistest.Keys(t, r.server.Client(), store.Key(r.queue, "adapt:*"))
	for _, wrong := range []Quota{{Limit: -1}, {Unit: "a b"}, {Window: -1}, {Of: "nobody"}} {
		if err := p.SetQuota(t.Context(), Quota{Limit: 1, Window: maxQuotaWindow, Of: QuotaOfTenant}, wrong); err == nil {
			t.Errorf("%+v is a quota", wrong)
		}
	}
	if after := redistest.Keys(t, r.server.Client(), store.Key(r.queue, "adapt:*")); len(before) != 1 || len(after) != 1 {
		t.Errorf("known: %v, then %v; want what was said to a", before, after)
	}
	left := int64(0)
	if err := p.SetQuota(t.Context(), Quota{Remaining: &left, Window: maxQuotaWindow, Of: QuotaOfTenant}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Take(t.Context(), r.call("b")); !errors.As(err, &refused) || refused.Limit != "adaptive" {
		t.Errorf("none is left, and a call goes: %v", err)
	}
}

// TestTransportGivesBack: a call that certainly was not sent used nothing, and the place of one that was sent is free
// when its answer was read, or when it failed.
func TestTransportGivesBack(t *testing.T) {
	t.Parallel()
	one := limits.Limit{Name: "one", Algorithm: throttle.Concurrency, Concurrency: 1, Per: []string{"tenant"}}
	r := startRig(t, 0, limitsOf(one, perHour("tenant", 2)), nil)
	server, get := r.transported(t, func(w http.ResponseWriter, request *http.Request) {
		if request.Header.Get("Tenant") == "cut" {
			panic(http.ErrAbortHandler)
		}
	})
	first, err := get("a")
	if err != nil {
		t.Fatal(err)
	}
	var refused *RefusedError
	if _, err := get("a"); !errors.As(err, &refused) || refused.Limit != "one" {
		t.Errorf("beside an answer that is not read: %v", err)
	}
	if _, err := io.Copy(io.Discard, first.Body); err != nil {
		t.Fatal(err)
	}
	if second, err := get("a"); err != nil {
		t.Errorf("after it was read: %v", err)
	} else {
		second.Body.Close()
	}
	for range 2 {
		if _, err := get("cut"); err == nil || errors.As(err, &refused) {
			t.Errorf("a call that fails: %v", err)
		}
	}
	if _, err := get("cut"); !errors.As(err, &refused) || refused.Limit != "tenant" {
		t.Errorf("calls that failed were sent: %v", err)
	}
	server.Close()
	for range 3 {
		if _, err := get("b"); err == nil || errors.As(err, &refused) {
			t.Errorf("a call that was not sent: %v", err)
		}
	}
}
