package queue

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// TestLimitPerReceiver: a limit per host holds for each receiver of webhooks over all tenants,
// however its URL is spelled, and a limit per domain for each mail domain.
func TestLimitPerReceiver(t *testing.T) {
	t.Parallel()
	for kind, test := range map[string]struct {
		per            string
		same, another  []string
		attribute, own string
	}{
		"webhook": {
			"host", []string{`{"url":"https://example.com/a"}`, `{"url":"http://EXAMPLE.com.:8080/b"}`, `{"url":"https://u@example.com/c?d"}`},
			[]string{`{"url":"https://hooks.example.com/a"}`}, "example.com", "other.example",
		},
		"email": {
			"domain", []string{`{"to":["a@example.com"]}`, `{"to":["B <b@Example.COM>","c@x.example"]}`, `{"to":["c@example.com"]}`},
			[]string{`{"to":["a@mail.example.com"]}`}, "example.com", "other.example",
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			receiver := limits.Limit{Name: "receiver", Per: []string{test.per}, Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: 1, Period: 1 << 42}}
			receiver.Rate.Period = receiver.Rate.Period.Truncate(1000)
			r := startRig(t, 2, limitsOf(receiver), nil)
			Handle(r.worker, Kind[json.RawMessage](kind), func(ctx context.Context, _ json.RawMessage) error {
				r.take(ctx)
				return nil
			})
			add := func(tenant, payload string) string {
				return r.add(t, func(job *Job) { job.Kind, job.Tenant, job.Payload = kind, tenant, json.RawMessage(payload) })
			}
			var waiting []string
			for i, payload := range test.same {
				id := add([]string{"a", "b", "c"}[i], payload)
				if i > 0 {
					waiting = append(waiting, id)
				}
			}
			for _, payload := range test.another {
				add("a", payload)
			}
			r.run(t)
			r.seen.wait(t, string(lifecycle.Done), 2)
			for _, id := range waiting {
				e := r.explain(t, id)
				if e.State == lifecycle.StateActive || e.State == lifecycle.StatePending {
					t.Errorf("%s went beside another job for its receiver: %+v", id, e)
				}
				if e.HeldBy == nil || e.HeldBy.Limit != "receiver" || !strings.Contains(e.HeldBy.Scope, test.attribute) {
					t.Errorf("%s is held by %+v: %+v", id, e.HeldBy, e)
				}
			}
			_, err := r.client.Enqueue(t.Context(), Job{
				Kind: kind, Queue: r.queue, Tenant: "a", Payload: json.RawMessage(test.same[0]), Attributes: map[string]string{test.per: test.own},
			})
			const want = `"other.example" differs from "example.com", which is derived from the payload; leave it out`
			if err == nil || !strings.Contains(err.Error(), "attributes: "+test.per+": "+want) {
				t.Errorf("a job that pretends to go elsewhere: %v", err)
			}
			// A payload without a receiver does not use up the limit of another one.
			for _, payload := range []string{`[]`, `{"url":"http:///x","to":[]}`, `{"url":"http://` + strings.Repeat("a.", 130) + `example/"}`} {
				_, err := r.client.Enqueue(t.Context(), Job{
					Kind: kind, Queue: r.queue, Tenant: "a", Payload: json.RawMessage(payload), Attributes: map[string]string{test.per: test.own},
				})
				if err == nil || !strings.Contains(err.Error(), "attributes: "+test.per+": it is derived from the payload, which has none; leave it out") {
					t.Errorf("%.30s: %v", payload, err)
				}
			}
			_, err = r.client.Enqueue(t.Context(), Job{
				Kind: kind, Queue: r.queue, Tenant: "a", Payload: json.RawMessage(test.same[0]), Attributes: map[string]string{test.per: "example.com", "region": "eu"},
			})
			if err != nil {
				t.Error(err)
			}
			// Other kinds may have attributes of these names.
			if _, err := r.client.Enqueue(t.Context(), Job{Kind: "call", Queue: r.queue, Tenant: "a", Attributes: map[string]string{test.per: test.own}}); err != nil {
				t.Error(err)
			}
		})
	}
}
