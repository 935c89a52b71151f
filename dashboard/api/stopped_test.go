package api

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// TestStoppedIsSaid: whoever enqueues or asks learns that no worker takes the job, or
// who paused it.
func TestStoppedIsSaid(t *testing.T) {
	r := newRig(t, redistest.Shared(t), nil)
	r.publish(throttle.PerSecond(10)) // and kind call is served
	says := func(got reply, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(got.body, want) {
				t.Errorf("lacks %s: %s", want, got.body)
			}
		}
	}
	// soon asks until it is told: a look at a queue is shared for a second, and one of before the
	// jobs came knows nothing of them.
	soon := func(path string, wants ...string) reply {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			got := r.want(200, "", "GET", path, "")
			if !slices.ContainsFunc(wants, func(want string) bool { return !strings.Contains(got.body, want) }) {
				return got
			}
			if time.Now().After(deadline) {
				t.Fatalf("lacks one of %q: %s", wants, got.body)
			}
		}
	}
	at := "/queues/" + r.queue
	unserved := "no worker of queue " + r.queue + " has a handler for kind other"
	whole := `"unserved":"` + unserved + `"`
	other := strings.Replace(r.job("acme", ""), `"call"`, `"other"`, 1)
	for range 2 { // the second is counted on from the look at the first
		got := r.want(202, "", "POST", "/jobs", other)
		says(got, whole, `waits: `+unserved, `"confidence":"none"`)
		id, _ := got.get(t, "id").(string)
		says(r.want(200, "", "GET", at+"/jobs/"+id, ""), whole)
	}
	says(r.want(200, "", "POST", at+"/estimate", `{"tenant":"acme","kind":"other","jobs":3}`), whole)
	soon(at, `"unserved":["`+unserved+`"]`, whole)
	soon(at+"/tenants", whole)
	soon(at+"/tenants/acme", whole)

	r.want(200, "", "POST", at+"/pause", `{"tenant":"globex","reason":"bounces"}`)
	pause := `"pause":{"tenant":"globex","by":"operator","reason":"`
	text := "tenant globex is paused by "
	says(r.want(202, "", "POST", "/jobs", r.job("globex", "")), pause, text, "until somebody resumes: bounces")
	says(r.want(200, "", "POST", at+"/estimate", `{"tenant":"globex","kind":"call","jobs":3}`), pause, text)
	says(r.want(200, "", "GET", at+"/tenants/globex", ""), pause, text)

	if err := operate.Publish(t.Context(), r.redis, limits.Set{Queues: map[string]limits.Queue{r.queue + "-2": {}}}); err != nil {
		t.Fatal(err)
	}
	nobodys := strings.Replace(r.job("acme", ""), r.queue, r.queue+"-2", 1)
	says(r.want(202, "", "POST", "/jobs", nobodys), `"unserved":"no worker serves queue `+r.queue+`-2"`, `"confidence":"none"`)
	for _, path := range []string{"", "/tenants", "/tenants/acme"} { // no end is promised
		got := soon(at+"-2"+path, "no worker serves queue "+r.queue+"-2", `"waiting":1`, `"confidence":"none"`)
		for _, promise := range []string{`"drains_at"`, `"expected_at"`} {
			if strings.Contains(got.body, promise) {
				t.Errorf("%s has %s though no worker serves the queue: %s", path, promise, got.body)
			}
		}
	}
}
