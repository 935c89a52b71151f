package api

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// TestMovingIsSaid: while tenants move to other partitions, the state of their queue says so.
func TestMovingIsSaid(t *testing.T) {
	r := newRig(t, redistest.Shared(t), nil)
	if err := operate.Publish(t.Context(), r.redis, limits.Set{Queues: map[string]limits.Queue{r.queue: {Partitions: 3}}}); err != nil {
		t.Fatal(err)
	}
	want := "tenants of queue " + r.queue + " are moving from 1 to 3 partitions: each waits for a moment"
	// The API knew the partitions for a second.
	until.Done(t, "it says that "+want, func() bool { return r.want(200, "", "GET", "/queues/"+r.queue, "").get(t, "moving") == want })
}

func TestTenants(t *testing.T) {
	r := newRig(t, redistest.Shared(t), nil)
	r.publish(throttle.PerSecond(1))
	for tenant, n := range map[string]int{"acme": 3, "globex": 1, "we/ird: ü": 2} {
		for range n {
			r.want(202, "", "POST", "/jobs", r.job(tenant, ""))
		}
	}
	at := "/queues/" + r.queue
	r.want(200, "", "POST", at+"/pause", `{"tenant":"acme","reason":"moving","for":"1h"}`)
	r.want(200, "", "PUT", at+"/tenants/globex/limits/tenant", `{"rate":"5/s","reason":"launch day"}`)
	names := func(query string) string {
		t.Helper()
		var all []string
		for _, row := range r.want(200, `"total":`, "GET", at+"/tenants"+query, "").get(t, "tenants").([]any) {
			all = append(all, row.(map[string]any)["tenant"].(string))
		}
		return strings.Join(all, ",")
	}
	for query, want := range map[string]string{
		"":                                "acme,we/ird: ü,globex",
		"?sort=tenant":                    "acme,globex,we/ird: ü",
		"?sort=tenant&order=desc":         "we/ird: ü,globex,acme",
		"?search=E&sort=tenant":           "acme,globex,we/ird: ü",
		"?search=glob":                    "globex",
		"?sort=tenant&limit=1":            "acme",
		"?sort=tenant&offset=1":           "globex,we/ird: ü",
		"?sort=waiting&order=asc":         "globex,we/ird: ü,acme",
		"?search=nobody":                  "",
		"?sort=tenant&offset=50":          "",
		"?search=" + url.QueryEscape(`ü`): "we/ird: ü",
		"?only=waiting&sort=tenant":       "acme,globex,we/ird: ü",
		"?only=waiting&search=ac":         "acme",
		"?only=paused":                    "acme",
		"?only=paused&search=glob":        "",
		"?only=overridden":                "globex",
		"?only=own":                       "",
	} {
		if got := names(query); got != want {
			t.Errorf("%s: %s; want %s", query, got, want)
		}
	}
	for query, want := range map[string]string{"?sort=size": `"field":"sort"`, "?only=idle": `"field":"only"`, "?limit=201": "limit", "?limit=x": "limit", "?offset=-1": "offset", "?order=up": "order"} {
		r.want(400, want, "GET", at+"/tenants"+query, "")
	}
	// All mistakes of a request are told at once.
	for body, want := range map[string][]string{
		"GET " + at + "/tenants?sort=size&only=idle&order=up&offset=x&limit=999":        {"sort", "only", "order", "offset", "limit"},
		"POST " + at + `/pause {"until":"soon"}`:                                        {"until", "reason"},
		"POST " + at + `/pause {"utnil":"soon","tenant":7}`:                             {"utnil", "tenant", "reason"},
		"PUT " + at + `/tenants/acme/limits/tenant {"rate":"fast","until":"yesterday"}`: {"rate", "until", "reason"},
	} {
		parts := strings.SplitN(body, " ", 3)
		if len(parts) == 2 {
			parts = append(parts, "")
		}
		var fields []string
		for _, e := range r.want(400, "", parts[0], parts[1], parts[2]).get(t, "errors").([]any) {
			fields = append(fields, e.(map[string]any)["field"].(string))
		}
		if !slices.Equal(fields, want) {
			t.Errorf("%s: errors of %q; want %q", body, fields, want)
		}
	}
	got := r.want(200, `"waiting":2`, "GET", at+"/tenants/"+url.PathEscape("we/ird: ü"), "")
	limit := got.get(t, "limits").([]any)[0].(map[string]any)
	if limit["name"] != "tenant" || limit["rule"] != "1/s" || limit["full"] != 1.0 || limit["from"] != "queue" || limit["binding"] == nil || limit["per"].([]any)[0] != "tenant" {
		t.Errorf("its limit: %v", limit)
	}
	if slots := got.get(t, "slots").([]any); len(slots) != 2 || got.get(t, "recent") == nil {
		t.Errorf("%s", got.body)
	}
	r.want(200, `"waiting":0`, "GET", at+"/tenants/nobody", "")
	r.want(404, "there is no queue", "GET", "/queues/none/tenants", "")
	r.want(404, "queue", "GET", "/queues/none", "")
	r.want(200, r.queue, "GET", "/queues", "")
}

// TestTenantsOfAKey: a key for single tenants lists these, by the same query.
func TestTenantsOfAKey(t *testing.T) {
	r, keys := keyed(t, redistest.Shared(t), Key{ID: "ops", Scopes: []Scope{Admin}}, Key{ID: "two", Scopes: []Scope{Read}, Tenants: []string{"acme", "globex"}})
	r.publish(throttle.PerSecond(1))
	r.key = keys["ops"]
	for _, tenant := range []string{"acme", "initech"} {
		r.want(202, "", "POST", "/jobs", r.job(tenant, ""))
		r.want(200, "", "POST", "/queues/"+r.queue+"/pause", `{"tenant":"`+tenant+`","reason":"moving"}`)
	}
	r.key = keys["two"]
	for query, want := range map[string]string{"": "2", "?only=paused": "1", "?only=waiting": "1", "?only=overridden": "0"} {
		r.want(200, `"total":`+want+"}", "GET", "/queues/"+r.queue+"/tenants"+query, "")
	}
	for query, want := range map[string]string{"?sort=size": `"field":"sort"`, "?only=idle": `"field":"only"`} {
		r.want(400, want, "GET", "/queues/"+r.queue+"/tenants"+query, "")
	}
}

// TestOwnLimits: what was published for a tenant alone is listed, whatever an operator changed.
func TestOwnLimits(t *testing.T) {
	r := newRig(t, redistest.Shared(t), nil)
	set := limits.Set{
		Queues: map[string]limits.Queue{r.queue: {Limits: []limits.Limit{
			{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1), Burst: 1, Per: []string{"tenant"}},
		}}},
		Tenants: map[string]limits.Tenant{"acme": {Weight: 3, Limits: map[string]map[string]limits.Change{r.queue: {"tenant": {Burst: new(int64(5))}}}}},
	}
	if err := operate.Publish(t.Context(), r.redis, set); err != nil {
		t.Fatal(err)
	}
	r.want(202, "", "POST", "/jobs", r.job("globex", ""))
	r.want(200, "", "PUT", "/queues/"+r.queue+"/tenants/acme/limits/tenant", `{"burst":9,"reason":"launch day"}`)
	const own = `"own":{"tenant":"1/s, burst 5","weight":"3"}`
	r.want(200, own+`}],"total":1}`, "GET", "/queues/"+r.queue+"/tenants?only=own", "")
	r.want(200, own, "GET", "/queues/"+r.queue+"/tenants/acme", "")
}

// TestSides: a limit says which calls it holds.
func TestSides(t *testing.T) {
	r := newRig(t, redistest.Shared(t), nil)
	limit := limits.Limit{Name: "account", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(1)}
	part := limits.Limit{Name: "part", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1), Burst: 1, For: limits.Jobs}
	if err := operate.Publish(t.Context(), r.redis, limits.Set{Queues: map[string]limits.Queue{r.queue: {Limits: []limits.Limit{limit, part}}}}); err != nil {
		t.Fatal(err)
	}
	if got := r.want(200, `"name":"part","per":[],"for":"jobs",`, "GET", "/queues/"+r.queue+"/limits", ""); strings.Count(got.body, `"for"`) != 1 {
		t.Error(got.body)
	}
}

// TestFaults: a queue tells what its scripts could not understand, but not to those
// who are for single tenants.
func TestFaults(t *testing.T) {
	r, keys := keyed(t, redistest.Start(t), Key{ID: "ops", Scopes: []Scope{Read}}, Key{ID: "acme", Scopes: []Scope{Read}, Tenants: []string{"acme"}})
	r.publish(throttle.PerSecond(1))
	r.key = keys["ops"]
	r.want(200, `"faults":[]`, "GET", "/queues/"+r.queue, "")
	if err := r.redis.HSet(t.Context(), "headgate:{"+r.queue+"}:faults",
		"job 17", "1700000000000000 it is a <b>list</b>", "lane \x1b[2Jacme\xff", "no time\r\n").Err(); err != nil {
		t.Fatal(err)
	}
	const want = `"faults":[{"what":"lane  [2Jacme?","reason":"no time  "},{"what":"job 17","reason":"it is a \u003cb\u003elist\u003c/b\u003e","at":"2023-11-14T22:13:20.000Z"}]`
	r.want(200, want, "GET", "/queues/"+r.queue, "")
	r.want(200, want, "GET", "/queues", "")
	r.key = keys["acme"]
	if got := r.want(200, r.queue, "GET", "/queues/"+r.queue, ""); strings.Contains(got.body, `"faults":`) {
		t.Errorf("a key of one tenant is told %s", got.body)
	}
}

func TestEstimate(t *testing.T) {
	r := newRig(t, redistest.Shared(t), nil)
	r.publish(throttle.PerSecond(10))
	r.want(202, "", "POST", "/jobs", r.job("acme", ""))
	at := "/queues/" + r.queue + "/estimate"
	// What the server read before the job came is used for a moment.
	until.Done(t, "the job waits", func() bool {
		return r.want(200, "", "POST", at, `{"tenant":"acme","jobs":100}`).get(t, "waiting") == 1.0
	})
	got := r.want(200, `"waiting":1`, "POST", at, `{"tenant":"acme","jobs":100}`)
	last, err := time.Parse(time.RFC3339, got.get(t, "last").(string))
	if away := time.Until(last); err != nil || away < 8*time.Second || away > 12*time.Second || got.get(t, "held_by.rule") != "10/s" {
		t.Errorf("the last of 100 at 10/s in %v: %s", away, got.body)
	}
	r.want(400, `"field":"jobs"`, "POST", at, `{"tenant":"acme","jobs":0}`)
	r.want(400, `"field":"tenant"`, "POST", at, `{"jobs":1}`)
	r.want(400, "did you mean", "POST", at, `{"tenat":"acme","jobs":1}`)
	r.want(404, "", "POST", "/queues/none/estimate", `{"tenant":"acme","jobs":1}`)
}

// A payload of null is none, as in a job: the batch goes where most jobs of the tenant wait.
func TestEstimateWithoutPayload(t *testing.T) {
	r := newRig(t, redistest.Shared(t), nil)
	r.publish(throttle.PerSecond(10))
	for n := range 3 {
		r.want(202, "", "POST", "/jobs", fmt.Sprintf(`{"queue":%q,"kind":"webhook","tenant":"acme","payload":{"url":"https://hooks.example.com/","body":%d}}`, r.queue, n))
	}
	at := "/queues/" + r.queue + "/estimate"
	const absent = `{"tenant":"acme","kind":"webhook","jobs":100}`
	// What the server read before the jobs came is used for a moment.
	until.Done(t, "the jobs wait", func() bool { return r.want(200, "", "POST", at, absent).get(t, "waiting") == 3.0 })
	r.want(200, `"waiting":3`, "POST", at, absent)
	r.want(200, `"waiting":3`, "POST", at, `{"tenant":"acme","kind":"webhook","jobs":100,"payload":null}`)
	r.want(200, `"waiting":0`, "POST", at, `{"tenant":"acme","kind":"webhook","jobs":100,"payload":{"url":"https://other.example.com/"}}`)
}

// A change of a limit is shown before it is made, and stands in the audit after.
func TestLimits(t *testing.T) {
	r := newRig(t, redistest.Shared(t), nil)
	r.publish(throttle.PerSecond(1))
	var all strings.Builder
	for range 100 {
		all.WriteString(r.job("acme", "") + "\n")
	}
	r.want(202, "", "POST", "/jobs/batch", all.String(), "Content-Type", ndjson)
	at := "/queues/" + r.queue
	limit := at + "/tenants/acme/limits/tenant"
	got := r.want(200, `"applied":false`, "PUT", limit, `{"rate":"10/s","dry_run":true}`)
	drains := func(path string) time.Duration {
		t.Helper()
		drains, err := time.Parse(time.RFC3339, got.get(t, path).(string))
		if err != nil {
			t.Fatal(err)
		}
		return time.Until(drains)
	}
	if before, after := drains("before.drains_at"), drains("after.drains_at"); before < 90*time.Second || before > 101*time.Second || after < 8*time.Second || after > 11*time.Second {
		t.Errorf("100 jobs drain in %v, and at 10/s in %v", before, after)
	}
	if got := r.want(200, "", "GET", at+"/limits", ""); strings.Contains(got.body, "acme") {
		t.Errorf("a dry run has changed something: %s", got.body)
	}
	r.want(200, `"applied":true`, "PUT", limit, `{"rate":"10/s","burst":5,"for":"1h","reason":"launch day"}`)
	got = r.want(200, "launch day", "GET", at+"/limits", "")
	override := got.get(t, "overrides").([]any)[0].(map[string]any)
	if override["tenant"] != "acme" || override["rule"] != "10/s" || override["burst"] != 5.0 || override["actor"] != "local" || override["until"] == nil ||
		override["file"].(map[string]any)["rule"] != "1/s" {
		t.Errorf("the override: %v", override)
	}
	if of := got.get(t, "limits").([]any)[0].(map[string]any); of["rule"] != "1/s" || of["from"] != "queue" {
		t.Errorf("the limit of all: %v", of)
	}
	if mine := r.want(200, "", "GET", at+"/tenants/acme", "").get(t, "limits").([]any)[0].(map[string]any); mine["from"] != "override" || mine["file"] == nil {
		t.Errorf("the limit of the tenant: %v", mine)
	}
	if entry := r.want(200, "", "GET", "/audit?queue="+r.queue+"&limit=1", "").get(t, "entries").([]any)[0].(map[string]any); entry["action"] != "override" ||
		entry["after"].(map[string]any)["tenant"] != "10/s, burst 5" || entry["actor"] != "local" {
		t.Errorf("the audit: %v", entry)
	}
	r.want(200, `"cleared":true`, "DELETE", limit, `{"reason":"it is over"}`)
	r.want(200, `"cleared":false`, "DELETE", limit, `{"reason":"it is over"}`)

	for body, want := range map[string]string{
		`{"reason":"x"}`:                                                        "the change is empty",
		`{"rate":"fast","reason":"x"}`:                                          `"field":"rate"`,
		`{"rate":"1/s"}`:                                                        `"field":"reason"`,
		`{"concurrency":3,"reason":"x"}`:                                        "",
		`{"rate":"1/s","until":"x","reason":"x"}`:                               `"field":"until"`,
		`{"rate":"1/s","for":"-1s","reason":"x"}`:                               `"field":"for","reason":"-1s must be longer than 0`,
		`{"rate":"1/s","for":60,"reason":"x"}`:                                  `"field":"for"`,
		`{"rate":"1/s","for":"a day","reason":"x"}`:                             `is not a duration such as 90s or 2h`,
		`{"rate":"1/s","for":"1s","until":"2099-01-01T00:00:00Z","reason":"x"}`: "not both",
		`{"rate":"1/s","until":"2001-01-01T00:00:00Z","reason":"x"}`:            "has passed",
		`{"rate":1,"reason":"x"}`:                                               "must be a text, not a JSON number",
		`{"rat":"1/s"}`:                                                         "did you mean",
	} {
		r.want(400, want, "PUT", limit, body)
	}
	r.want(404, "has no limit", "PUT", at+"/tenants/acme/limits/tenent", `{"rate":"1/s","reason":"x"}`)
	r.want(404, "has no limit", "DELETE", at+"/tenants/acme/limits/none", `{"reason":"x"}`)
	r.want(404, "there is no queue", "PUT", "/queues/none/tenants/acme/limits/tenant", `{"rate":"1/s","reason":"x"}`)
}

func TestJobs(t *testing.T) {
	r := newRig(t, redistest.Shared(t), nil)
	r.publish(throttle.PerSecond(1))
	for i := range 5 {
		r.want(202, "", "POST", "/jobs", r.job("acme", fmt.Sprintf(`,"key":"k/%d"`, i)))
	}
	at := "/queues/" + r.queue
	first := r.want(200, "", "GET", at+"/jobs?state=waiting&limit=3", "")
	second := r.want(200, "", "GET", at+"/jobs?state=waiting&limit=3&cursor="+url.QueryEscape(first.get(t, "next").(string)), "")
	if n, m := len(first.get(t, "jobs").([]any)), len(second.get(t, "jobs").([]any)); n != 3 || m != 2 || second.get(t, "next") != nil {
		t.Errorf("pages of %d and %d: %s", n, m, second.body)
	}
	row := first.get(t, "jobs").([]any)[0].(map[string]any)
	if row["tenant"] != "acme" || row["state"] != "waiting" || row["queue"] != r.queue || row["attempt"] != 1.0 || row["at"] == nil {
		t.Errorf("%v", row)
	}
	id := url.PathEscape(row["id"].(string))
	got := r.want(200, `"state":"waiting"`, "GET", at+"/jobs/"+id, "")
	if got.get(t, "position") != 0.0 || got.get(t, "payload.n") != 1.0 || got.get(t, "payload_bytes") != 7.0 || got.get(t, "waiting") != 5.0 {
		t.Errorf("%s", got.body)
	}
	r.want(200, `"jobs":1`, "POST", at+"/jobs/"+id+"/cancel", `{"reason":"a try"}`)
	if got := r.want(200, `"state":"archived","outcome":"cancelled"`, "GET", at+"/jobs/"+id, ""); !strings.Contains(got.get(t, "error").(string), "cancelled by local: a try") {
		t.Errorf("%s", got.body)
	}
	r.want(200, "cancelled by local", "GET", at+"/jobs?state=archived&reason=a+try", "")
	r.want(200, `"jobs":[]`, "GET", at+"/jobs?state=archived&reason=nothing", "")
	groups := r.want(200, `"total":1`, "GET", at+"/failures", "")
	g := groups.get(t, "groups").([]any)[0].(map[string]any)
	if g["outcome"] != "cancelled" || g["jobs"] != 1.0 || g["tenants"] != 1.0 || g["job"] != row["id"] || len(g["hours"].([]any)) != 24 || g["hours"].([]any)[23] != 1.0 {
		t.Errorf("%v", g)
	}
	r.want(200, `"total":1`, "GET", at+"/failures?tenant=acme", "")
	r.want(200, `"groups":[]`, "GET", at+"/failures?tenant=nobody", "")
	r.want(200, `"counts":false`, "GET", at+"/conformance", "")
	now := r.redis.Time(t.Context()).Val().UTC()
	hours := fmt.Sprintf("%d 3 2 %d 4 3", now.Hour(), now.UnixMicro())
	r.redis.HSet(t.Context(), "headgate:{"+r.queue+"}:conformance:"+now.Format(time.DateOnly), "tenant:acme", hours, "account:", fmt.Sprintf("%d 1 2", now.Hour()))
	if got := r.want(200, `"total":2`, "GET", at+"/conformance?hours=2&n=1", ""); len(got.get(t, "buckets").([]any)) != 1 || !strings.Contains(got.body, `"took":4,"allowed":3,"causes":[]`) {
		t.Errorf("%s", got.body)
	}
	r.want(200, `"total":1`, "GET", at+"/conformance?limit=account", "")
	r.want(400, `"hours"`, "GET", at+"/conformance?hours=0", "")
	r.want(400, `"hours"`, "GET", at+"/conformance?hours=721", "")
	r.want(400, `"n"`, "GET", at+"/conformance?n=0", "")
	r.api.reports.taken = maxReports
	r.want(429, "4 reports of conformance are in progress", "GET", at+"/conformance", "")
	r.api.reports.taken = 0
	group := func(outcome, kind, reason any) string {
		return string(mustJSON(map[string]any{"outcome": outcome, "kind": kind, "reason": reason}))
	}
	r.want(400, `"errors":[{"field":"verb","reason":"\"wake\" is not one of cancel, retry, run, delete"}]`, "POST", at+"/actions", `{"verb":"wake","reason":"x"}`)
	this := group(g["outcome"], g["kind"], g["reason"])
	for group, want := range map[string]string{this: "cancelled by local", group("archived", g["kind"], g["reason"]): `"jobs":[]`, group(g["outcome"], g["kind"], ""): `"jobs":[]`} {
		r.want(200, want, "GET", at+"/jobs?state=archived&group="+url.QueryEscape(group), "")
	}
	r.want(200, `"jobs":1,`, "POST", at+"/actions", `{"verb":"retry","dry_run":true,"group":`+this+`}`)
	r.want(200, `"jobs":0,`, "POST", at+"/actions", `{"verb":"delete","dry_run":true,"group":`+group(g["outcome"], g["kind"], "")+`}`)
	for field, body := range map[string]string{
		"kind": `"kind":"call","group":` + this, "group": `"group":7`, "group.reason": `"group":{"outcome":"cancelled","kind":"call"}`, "group.kind": `"group":{"outcome":"cancelled","reason":""}`,
		"group.outcome": `"group":{"kind":"call","reason":""}`, "group.reson": `"group":{"outcome":"cancelled","kind":"call","reson":""}`,
	} {
		r.want(400, `"field":"`+field+`"`, "POST", at+"/actions", `{"verb":"delete","reason":"x",`+body+`}`)
	}
	r.want(400, `"field":"group"`, "GET", at+"/jobs?state=archived&group=x", "")
	r.want(400, `"field":"group"`, "GET", at+"/jobs?state=waiting&group="+url.QueryEscape(this), "")
	r.want(409, "wrong_state", "POST", at+"/jobs/"+id+"/cancel", `{"reason":"again"}`)
	r.want(200, `"jobs":1`, "POST", at+"/jobs/"+id+"/retry", `{"reason":"a try"}`)
	r.want(200, `"jobs":1`, "POST", at+"/jobs/"+id+"/run", `{"reason":"now"}`)
	r.want(409, "wrong_state", "DELETE", at+"/jobs/"+id, `{"reason":"x"}`)
	r.want(404, "no job", "POST", at+"/jobs/none/cancel", `{"reason":"x"}`)
	r.want(404, "no such job", "GET", at+"/jobs/none", "")
	r.want(400, "reason", "POST", at+"/jobs/"+id+"/cancel", `{}`)
	for _, query := range []string{"", "?state=lost", "?state=waiting&cursor=x", "?state=waiting&reason=x", "?state=waiting&limit=-1", "?state=waiting&kind=a+b"} {
		r.want(400, "invalid", "GET", at+"/jobs"+query, "")
	}

	// Many at once are counted first.
	r.want(200, `"dry_run":true`, "POST", at+"/actions", `{"verb":"cancel","tenant":"acme","dry_run":true}`)
	r.want(200, `"jobs":5`, "POST", at+"/actions", `{"verb":"cancel","tenant":"acme","reason":"all of them"}`)
	r.want(200, `"jobs":5`, "POST", at+"/actions", `{"verb":"delete","reason_contains":"all of them","reason":"done with"}`)
	r.want(400, "not one of cancel", "POST", at+"/actions", `{"verb":"destroy","reason":"x"}`)
	r.want(400, `"field":"state"`, "POST", at+"/actions", `{"verb":"retry","state":"waiting","reason":"x"}`)
}

// What is secret by its name is shown to nobody, however deep it lies.
func TestRedaction(t *testing.T) {
	r := newRig(t, redistest.Shared(t), func(c *Config) { c.Redact = []string{"shoe-size"} })
	payload := `{"user":"ann","Password":"CANARY1","deep":[{"api_key":"CANARY2","apiKey":["CANARY3"],"max_tokens":100}],
		"headers":{"Authorization":"Bearer CANARY4","X-Auth-Token":"CANARY5"},"card":{"number":"CANARY6","cvc":"CANARY7","exp_month":1},
		"url":"https://u:CANARY8@example.com/a?token=CANARY9&page=2","shoeSize":"CANARY10","big":12345678901234567890}`
	body := fmt.Sprintf(`{"kind":"call","queue":%q,"tenant":"acme","headers":{"x-secret":"CANARY11","trace":"kept"},"payload":%s}`, r.queue, payload)
	id := r.want(202, "", "POST", "/jobs", body).get(t, "id").(string)
	got := r.want(200, "ann", "GET", "/queues/"+r.queue+"/jobs/"+id, "")
	if strings.Contains(got.body, "CANARY") {
		t.Errorf("it tells a secret: %s", got.body)
	}
	for _, kept := range []string{`"max_tokens":100`, "page=2", `"trace":"kept"`, "12345678901234567890", "[redacted]"} {
		if !strings.Contains(got.body, kept) {
			t.Errorf("it lacks %s: %s", kept, got.body)
		}
	}
	// The job keeps what it had.
	d, err := inspect.New(r.redis).Job(t.Context(), r.queue, id)
	if err != nil || !strings.Contains(string(d.Payload), "CANARY1") {
		t.Errorf("the payload is %s, %v", d.Payload, err)
	}
}
