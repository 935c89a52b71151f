package api

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/test/arrivals"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/throttle"
)

// TestTrial: the limits file of a queue can be read, changed and tried, and all its mistakes are said with their lines.
func TestTrial(t *testing.T) {
	r := newRig(t, redistest.Shared(t), nil)
	r.publish(throttle.PerSecond(10))
	at := "/queues/" + r.queue
	r.want(200, `queues:\n  `+r.queue+`:\n`, "GET", at+"/limits/file", "")
	file := `"file":"queues: {` + r.queue + `: {limits: [{name: tenant, algorithm: token_bucket, rate: 1/s, per: [tenant]}, {name: all, algorithm: leaky_bucket, rate: 100/s, adaptive: true}]}}"`
	r.want(200, `{"calls":0,"jobs":0,`, "POST", at+"/trial", "{"+file+"}")
	var calls []arrivals.Call
	came := time.Now().Add(-time.Minute).Truncate(time.Second)
	for i := range 11 {
		calls = append(calls, arrivals.Call{Tenant: "é", Came: came, Waited: time.Duration(i) * 100 * time.Millisecond})
	}
	if err := arrivals.Put(t.Context(), r.redis, r.queue, calls...); err != nil {
		t.Fatal(err)
	}
	body := r.want(200, `"calls":11,"jobs":11,"measured":{"p50_seconds":0.5,"p95_seconds":1,"p99_seconds":1,"max_seconds":1}`, "POST", at+"/trial", "{"+file+`,"n":5}`).body
	for _, want := range []string{
		`"in_force":{"p50_seconds":0.5,"p95_seconds":1,"p99_seconds":1,"max_seconds":1,"limits":[{"name":"tenant","held_seconds":1,"tenants":1}]}`,
		`"proposed":{"p50_seconds":5,"p95_seconds":10,"p99_seconds":10,"max_seconds":10,"limits":[{"name":"tenant","held_seconds":10,"tenants":1},{"name":"all","used":0.0`,
		`"tenants":[{"tenant":"é","jobs":11,`, `"held_by":"tenant","would_hold_by":"tenant"}],"total":1,"not_counted":[],"full_rate":["all"]`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is missing in %s", want, body)
		}
	}
	r.want(200, `"tenants":[],"total":0`, "POST", at+"/trial", "{"+file+`,"tenant":"other"}`)
	r.want(400, `{"field":"n","reason":"0 must be 1 to 1000"}`, "POST", at+"/trial", "{"+file+`,"n":0}`)
	r.want(400, `{"field":"queue","reason":"the proposed limits have no queue`, "POST", at+"/trial", `{"file":"queues: {other: {}}"}`)
	r.want(400, `"errors":[{"field":"file:1",`, "POST", at+"/trial", `{"file":"queues: {`+r.queue+`: {limits: [{name: tenant, rate: 1/s}]}}"}`)
	r.want(400, `"field":"file:3","reason":"`, "POST", at+"/trial", `{"file":"queues:\n  `+r.queue+`:\n    limitz: []\n"}`)
	many := r.want(400, `"detail":"The limits file has mistakes."`, "POST", at+"/trial", `{"file":"queues: {`+r.queue+`: {`+strings.Repeat("x, ", 10_000)+`}}"}`)
	if listed := many.get(t, "errors").([]any); len(listed) != check.MaxErrors+1 || !strings.Contains(many.body, check.AndMore) {
		t.Errorf("%d of 10,000 mistakes are listed: %.300s", len(listed), many.body)
	}
	r.want(413, "1048576", "POST", at+"/trial", `{"file":"`+strings.Repeat(" ", maxLimitsFile)+`"}`)
	// Others do not wait for two that take long.
	r.api.trials.taken = maxTrials
	r.want(429, "2 trials are in progress", "POST", at+"/trial", "{"+file+"}")
}
