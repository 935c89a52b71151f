package api

import (
	"fmt"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestShares: the calls between two readings are those of the tenants who made them, whatever
// the time between the readings.
func TestShares(t *testing.T) {
	s := &shares{queues: map[string]*usage{}}
	began := time.Now()
	look := func(after time.Duration, calls map[string]int64) { s.add("q", began.Add(after), calls, time.Time{}) }
	if got := s.of("q"); got.From != nil || len(got.Times)+len(got.Tenants)+len(got.Others) != 0 {
		t.Errorf("before any reading: %+v", got)
	}
	look(0, map[string]int64{"old": 1000, "acme": 7})
	look(10*time.Second, map[string]int64{"old": 1000, "acme": 37, "globex": 10})
	look(30*time.Second, map[string]int64{"old": 1000, "acme": 57, "globex": 30})
	got := s.of("q")
	if len(got.Times) != 2 || !got.From.Equal(began) || len(got.Tenants) != 2 {
		t.Fatalf("%+v", got)
	}
	check := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-6 {
			t.Errorf("%s: %v; want %v", what, got, want)
		}
	}
	for i, want := range []struct {
		tenant             string
		share, sent, p0, p float64
	}{{"acme", 50.0 / 80, 50.0 / 30, 3, 1}, {"globex", 30.0 / 80, 1, 1, 1}} {
		one := got.Tenants[i]
		if one.Tenant != want.tenant || len(one.PerSecond) != 2 {
			t.Fatalf("%+v; want %s", one, want.tenant)
		}
		check("share", one.Share, want.share)
		check("sent", float64(one.Sent), want.sent)
		check("first", float64(one.PerSecond[0]), want.p0)
		check("second", float64(one.PerSecond[1]), want.p)
	}

	// A Redis that lost its counts adds nothing, and the clock may stand still.
	look(40*time.Second, map[string]int64{"acme": 1})
	look(40*time.Second, map[string]int64{"acme": 5})
	if got := s.of("q"); len(got.Times) != 3 || got.Tenants[0].PerSecond[2] != 0 {
		t.Errorf("%+v", got)
	}

	// Many tenants, for longer than is kept.
	calls := map[string]int64{}
	for i := range 80 {
		for n := range 200 {
			calls[fmt.Sprint("t", n)] += int64(n)
		}
		look(time.Minute+time.Duration(i)*shareEvery, calls)
		calls = maps.Clone(calls)
	}
	got = s.of("q")
	if n := len(got.Times); n != shareLen || len(got.Tenants) != shareShown || len(got.Others) != n {
		t.Fatalf("%d periods of %d tenants", n, len(got.Tenants))
	}
	sum := 0.0
	for _, one := range got.Tenants {
		sum += float64(one.PerSecond[0])
	}
	check("all in ten seconds", sum+float64(got.Others[0]), 199*200/2/10.0)
	if got.Tenants[0].Tenant != "t199" {
		t.Errorf("the most are of %s", got.Tenants[0].Tenant)
	}
}

// TestSharesOverHTTP: they are read from Redis, and are not for keys of single tenants.
func TestSharesOverHTTP(t *testing.T) {
	r, keys := keyed(t, redistest.Start(t), Key{ID: "ops", Scopes: []Scope{Read}}, Key{ID: "acme", Scopes: []Scope{Read}, Tenants: []string{"acme"}})
	r.publish(throttle.PerSecond(1))
	at, counts := "/queues/"+r.queue+"/shares", "headgate:{"+r.queue+"}:tenants"
	r.key = keys["ops"]
	for _, n := range []int64{5, 25} {
		if err := r.redis.HSet(t.Context(), counts, "a%20b", fmt.Sprintf("0 %d 0 0", n)).Err(); err != nil {
			t.Fatal(err)
		}
		r.api.shares.mu.Lock()
		if u := r.api.shares.queues[r.queue]; u != nil {
			u.due = time.Time{}
		}
		r.api.shares.mu.Unlock()
		r.api.shares.read(t.Context())
	}
	got := r.want(200, `"tenant":"a b","share":1,`, "GET", at, "")
	if times := got.get(t, "times").([]any); len(times) == 0 {
		t.Errorf("%s", got.body)
	}
	r.want(404, "no queue", "GET", "/queues/none/shares", "")
	r.key = keys["acme"]
	r.want(403, "", "GET", at, "")
}
