package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/testlong"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// keyed makes an API that takes these keys, and the keys' texts by their ids.
func keyed(t testing.TB, server *redistest.Server, keys ...Key) (*rig, map[string]string) {
	t.Helper()
	texts := map[string]string{}
	for i := range keys {
		texts[keys[i].ID], keys[i].Hash = NewKey()
		if err := keys[i].Validate(); err != nil && keys[i].Expires.IsZero() {
			t.Fatal(err)
		}
	}
	set := NewKeys(keys)
	return newRig(t, server, func(c *Config) {
		c.Keys = func() *Keys { return set }
		c.Requests.timeout = time.Minute // a busy machine is not a Redis that is away
	}), texts
}

func (r *rig) job(tenant, more string) string {
	return fmt.Sprintf(`{"kind":"call","queue":%q,"tenant":%q,"payload":{"n":1}%s}`, r.queue, tenant, more)
}

func TestEnqueueOne(t *testing.T) {
	r := newRig(t, redistest.Shared(t), nil)
	began := time.Now()
	r.publish(throttle.PerSecond(1))
	got := r.want(202, `"state":"waiting"`, "POST", "/jobs", r.job("acme", ""))
	answered := time.Now()
	if got.get(t, "id") == "" || got.get(t, "queue") != r.queue || got.get(t, "existing") != false {
		t.Errorf("%s", got.body)
	}
	if got.get(t, "position") != 0.0 || got.get(t, "expected_at") == nil || got.get(t, "confidence") == "none" {
		t.Errorf("what is expected of it: %s", got.body)
	}
	// The second waits for the first, and a second for its own permit.
	second := r.want(202, `"position":1`, "POST", "/jobs", r.job("acme", ""))
	if second.get(t, "held_by.limit") != "tenant" {
		t.Errorf("the second is held by %s", second.body)
	}
	// Both may be expected from one reading, which may be as old as the queue.
	expected := func(a reply, from, to time.Time) {
		t.Helper()
		if at, err := time.Parse(time.RFC3339, a.get(t, "expected_at").(string)); err != nil || at.Before(from) || at.After(to) {
			t.Errorf("it is expected at %v, %v; want %v to %v", at, err, from, to)
		}
	}
	expected(got, began.Truncate(time.Millisecond), answered.Add(100*time.Millisecond))
	expected(second, began.Add(time.Second), time.Now().Add(1100*time.Millisecond))

	r.want(202, `"existing":false`, "POST", "/jobs", r.job("acme", ""), "Idempotency-Key", "k1")
	r.want(202, `"existing":true`, "POST", "/jobs", r.job("acme", ""), "Idempotency-Key", "k1")
	r.want(202, `"existing":true`, "POST", "/jobs", r.job("acme", `,"key":"k1"`), "Idempotency-Key", "another")
	r.want(409, `"code":"conflict"`, "POST", "/jobs", strings.Replace(r.job("acme", ""), `"n":1`, `"n":2`, 1), "Idempotency-Key", "k1")
	r.want(202, `"state":"scheduled"`, "POST", "/jobs", r.job("acme", `,"in":"1h"`))
}

func TestEnqueueRefuses(t *testing.T) {
	r := newRig(t, redistest.Shared(t), func(c *Config) { c.Requests.PerKey = throttle.PerSecond(10_000) })
	limits := limits.Set{Queues: map[string]limits.Queue{r.queue: {MaxBacklog: 1}}}
	if err := operate.Publish(t.Context(), r.redis, limits); err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]string{
		`{"kind":"call","tenant":"a","paylod":1}`: `did you mean \"payload\"?`,
		`[]`: "must be one object",
		`{`:  "not JSON",
		`{"kind":"call","tenant":"","payload":1}`:                       `"field":"tenant"`,
		`{"kind":"a b","tenant":"t","payload":1,"at":"x"}`:              `"field":"at"`,
		`{"kind":"call","tenant":"a","payload":1,"cost":0,"key":""}`:    `"field":"cost"`,
		`{"kind":"call","tenant":"a","payload":1}{"kind":"call"}`:       "more than one object",
		`{"kind":"call","tenant":"a","payload":1,"max_attempts":"ten"}`: "max_attempts: must be a whole number",
	} {
		got := r.want(400, want, "POST", "/jobs", body)
		if code := got.get(t, "code"); code != "invalid" && code != "unknown_queue" || got.get(t, "status") != 400.0 {
			t.Errorf("%s: %s", body, got.body)
		}
	}
	r.want(415, "media_type", "POST", "/jobs", r.job("a", ""), "Content-Type", "text/plain")
	r.want(415, "uncompressed", "POST", "/jobs", r.job("a", ""), "Content-Encoding", "gzip")
	r.want(413, "too_large", "POST", "/jobs", `{"payload":"`+strings.Repeat("x", 2<<20)+`"}`)
	r.want(202, "", "POST", "/jobs", r.job("full", ""))
	if got := r.want(429, "backlog_full", "POST", "/jobs", r.job("full", "")); got.header.Get("Retry-After") == "" {
		t.Error("a full backlog without Retry-After")
	}
	r.want(404, "not_found", "GET", "/nothing", "")
	if got := r.want(405, "method_not_allowed", "GET", "/jobs", ""); got.header.Get("Allow") != "POST" {
		t.Errorf("Allow: %q", got.header.Get("Allow"))
	}
}

// Who has no key, another's scope or another's tenant is refused, and that is noted.
func TestWhoMayNot(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r, keys := keyed(t, server,
		Key{ID: "in", Scopes: []Scope{Enqueue}}, Key{ID: "acme", Scopes: []Scope{Enqueue, Read, Operate}, Tenants: []string{"acme"}},
		Key{ID: "reader", Scopes: []Scope{Read}}, Key{ID: "old", Scopes: []Scope{Admin}, Expires: time.Now().Add(-time.Second)},
		Key{ID: "ops", Scopes: []Scope{Admin}})
	r.publish(throttle.PerSecond(1))
	r.key = keys["ops"]
	other := r.want(202, "", "POST", "/jobs", r.job("globex", "")).get(t, "id").(string)
	mine := r.want(202, "", "POST", "/jobs", r.job("acme", "")).get(t, "id").(string)
	at := "/queues/" + r.queue
	var want []string
	followUp := `,"on_success":{"kind":"call","tenant":"globex","payload":1}`
	for name, test := range map[string]struct {
		key                string
		status             int
		method, path, body string
		noted              string // in the list of refusals
	}{
		"no key":                   {"", 401, "GET", "/session", "", "no key"},
		"no key for the version":   {"", 401, "GET", "/version", "", "no key"},
		"unknown key":              {"hg_x", 401, "GET", "/session", "", "unknown key"},
		"an expired key":           {keys["old"], 401, "GET", "/session", "", "key old has expired"},
		"enqueue may not read":     {keys["in"], 403, "GET", at, "", "no scope read"},
		"enqueue may not change":   {keys["in"], 403, "POST", at + "/pause", `{"reason":"x"}`, "no scope operate"},
		"read may not enqueue":     {keys["reader"], 403, "POST", "/jobs", r.job("acme", ""), "no scope enqueue"},
		"read may not change":      {keys["reader"], 403, "DELETE", at + "/jobs/" + mine, `{"reason":"x"}`, "no scope operate"},
		"another tenant's job":     {keys["acme"], 404, "POST", at + "/jobs/" + other + "/cancel", `{"reason":"x"}`, "a job of tenant globex"},
		"a job for another tenant": {keys["acme"], 403, "POST", "/jobs", r.job("globex", ""), "tenant globex"},
		"one that follows":         {keys["acme"], 403, "POST", "/jobs", r.job("acme", followUp), "tenant globex"},
		"another tenant's limit":   {keys["acme"], 403, "DELETE", at + "/tenants/globex/limits/tenant", `{"reason":"x"}`, "tenant globex"},
		"another tenant's pause":   {keys["acme"], 403, "POST", at + "/pause", `{"tenant":"globex","reason":"x"}`, "tenant globex"},
		"pausing the queue":        {keys["acme"], 403, "POST", at + "/pause", `{"reason":"x"}`, "not for single tenants"},
		"cancelling in the queue":  {keys["acme"], 403, "POST", at + "/actions", `{"verb":"cancel","reason":"x"}`, "not for single tenants"},
		"estimating for another":   {keys["acme"], 403, "POST", at + "/estimate", `{"tenant":"globex","jobs":1}`, "tenant globex"},
		"what the queue was like":  {keys["acme"], 403, "GET", at + "/history", "", "not for single tenants"},
		"watching another tenant":  {keys["acme"], 403, "GET", "/events?tenant=globex", "", "tenant globex"},
		"counting in another":      {keys["acme"], 403, "POST", at + "/actions", `{"verb":"cancel","dry_run":true,"tenant":"globex"}`, "tenant globex"},
		"enqueue may not clear":    {keys["in"], 403, "DELETE", at + "/tenants/acme/limits/tenant", `{"reason":"x"}`, "no scope operate"},
	} {
		t.Run(name, func(t *testing.T) {
			r := *r
			r.t, r.key = t, test.key
			r.want(test.status, "", test.method, test.path, test.body)
		})
		want = append(want, test.noted)
	}
	r.key = ""
	r.want(200, `"openapi":"3.1`, "GET", "/openapi.json", "")
	r.key = keys["ops"]
	var noted []string
	for deadline := time.Now().Add(time.Minute); len(noted) < len(want) && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		noted = server.Client().LRange(t.Context(), refusedKey, 0, -1).Val() // Redis tells nobody
	}
	all := strings.Join(noted, "\n")
	if len(noted) != len(want) || strings.Contains(all, "hg_") {
		t.Errorf("%d are noted; want %d:\n%s", len(noted), len(want), all)
	}
	for _, text := range want {
		if !strings.Contains(all, `"reason":"`+text+": ") {
			t.Errorf("%q is not noted:\n%s", text, all)
		}
	}
	// Nothing of all that was done.
	r.key = keys["ops"]
	r.want(200, `"waiting":2`, "GET", at, "")
	if changes, err := operate.Audit(t.Context(), server.Client(), r.queue, 100); err != nil || len(changes) != 2 { // limits were published twice
		t.Errorf("the audit has %+v, %v", changes, err)
	}
	r.want(200, "refused", "GET", "/audit", "")
	r.key = keys["acme"]
	if got := r.want(200, "", "GET", "/audit", ""); strings.Contains(got.body, "refused") || strings.Contains(got.body, "globex") {
		t.Errorf("a key of one tenant is shown %s", got.body)
	}
}

// A key of one tenant can do all that it is for, and sees nothing of others.
func TestKeyOfOneTenant(t *testing.T) {
	server := redistest.Start(t)
	r, keys := keyed(t, server, Key{ID: "ops", Scopes: []Scope{Admin}}, Key{ID: "acme", Scopes: []Scope{Enqueue, Read, Operate}, Tenants: []string{"acme"}})
	r.publish(throttle.PerSecond(1))
	r.key = keys["ops"]
	for range 3 {
		r.want(202, "", "POST", "/jobs", r.job("globex", ""))
	}
	r.want(200, "", "POST", "/queues/"+r.queue+"/pause", `{"tenant":"globex","reason":"globex owes us"}`)
	r.key = keys["acme"]
	id := r.want(202, "", "POST", "/jobs", r.job("acme", "")).get(t, "id").(string)
	at := "/queues/" + r.queue
	for _, path := range []string{"/session", "/queues", at, at + "/tenants", at + "/tenants?search=o", "/audit"} {
		if got := r.want(200, "", "GET", path, ""); strings.Contains(got.body, "globex") {
			t.Errorf("%s tells of another tenant: %s", path, got.body)
		}
	}
	if got := r.want(200, "", "GET", at, ""); got.get(t, "waiting") != 1.0 || got.get(t, "tenants") != 1.0 || got.get(t, "enqueued") != nil {
		t.Errorf("the queue as acme sees it: %s", got.body)
	}
	r.want(200, `"total":1`, "GET", at+"/tenants", "")
	r.want(200, `"jobs":1`, "POST", at+"/actions", `{"verb":"cancel","tenant":"acme","dry_run":true}`)
	r.want(200, `"by":"operator"`, "POST", at+"/pause", `{"tenant":"acme","for":"1m","reason":"a try"}`)
	r.want(200, `"resumed":true`, "POST", at+"/resume", `{"tenant":"acme","reason":"a try"}`)
	r.want(200, `"jobs":1`, "POST", at+"/jobs/"+id+"/cancel", `{"reason":"a try"}`)
	got := r.want(200, `"action":"cancel"`, "GET", "/audit", "")
	if !strings.Contains(got.body, `"actor":"acme"`) {
		t.Errorf("the audit: %s", got.body)
	}
}

// Without keys this machine may do all, and nobody else anything.
func TestWithoutKeys(t *testing.T) {
	r := newRig(t, redistest.Shared(t), nil)
	if got := r.want(200, `"auth":"none"`, "GET", "/session", ""); got.get(t, "actor") != "local" {
		t.Errorf("%s", got.body)
	}
	for _, host := range []string{"localhost", "localhost:9090", "127.0.0.1", "[::1]:80"} {
		r.want(200, "", "GET", "/session", "", "Host", host)
	}
	for _, host := range []string{"example.com", "localhost.example.com", "127.0.0.1.example.com:80", "10.0.0.1"} {
		r.want(403, "use localhost", "GET", "/session", "", "Host", host)
	}
	for _, peer := range []string{"192.0.2.1:1234", "[2001:db8::1]:1", "@", ""} {
		request := httptest.NewRequest("GET", "http://localhost"+Base+"/session", nil)
		request.RemoteAddr = peer
		recorder := httptest.NewRecorder()
		r.api.ServeHTTP(recorder, request)
		if recorder.Code != 403 || !strings.Contains(recorder.Body.String(), "this machine") {
			t.Errorf("from %q: %d %s", peer, recorder.Code, recorder.Body)
		}
	}
	for _, header := range []string{"Forwarded", "Via", "X-Real-IP", "X-Forwarded-For", "x-forwarded-proto", "X-Forwarded-Anything"} {
		r.want(403, "came through a proxy", "GET", "/session", "", header, "127.0.0.1")
		r.want(403, "HEADGATE_API_KEYS_FILE", "POST", "/jobs", r.job("acme", ""), header, "")
	}
	// Cross-origin requests may not make changes, even from this machine's browser.
	r.want(403, "Cross-origin requests", "POST", "/queues/"+r.queue+"/pause", `{"reason":"x"}`, "Origin", "https://example.com")
	r.want(403, "Cross-origin requests", "POST", "/jobs", `{}`, "Sec-Fetch-Site", "cross-site")
}

func TestReadOnly(t *testing.T) {
	r := newRig(t, redistest.Shared(t), func(c *Config) { c.ReadOnly = true })
	if _, err := queue.NewClient(r.redis).Enqueue(t.Context(), queue.Job{Kind: "call", Queue: r.queue, Tenant: "acme", Payload: 1}); err != nil {
		t.Fatal(err)
	}
	at := "/queues/" + r.queue
	r.want(403, "read_only", "POST", "/jobs", r.job("acme", ""))
	r.want(403, "read_only", "POST", "/jobs/batch", `{"jobs":[`+r.job("acme", "")+`]}`)
	r.want(403, "read_only", "POST", at+"/actions", `{"verb":"cancel","reason":"x"}`)
	r.want(403, "read_only", "POST", at+"/pause", `{"reason":"x"}`)
	r.want(403, "read_only", "DELETE", at+"/jobs/x", `{"reason":"x"}`)
	r.want(403, "read_only", "POST", "/lab/token_bucket/take", `{"n":1}`)
	r.want(403, "read_only", "POST", "/lab/token_bucket/reset", `{}`)
	r.want(200, `"jobs":1`, "POST", at+"/actions", `{"verb":"cancel","dry_run":true}`)
	r.want(200, `"read_only":true`, "GET", "/session", "")
}

// Three limits hold at once, and each that refuses says so.
func TestRequestLimits(t *testing.T) {
	one := throttle.Rate{Count: 3, Period: time.Hour}
	for limit, set := range map[string]func(*RequestLimits){
		"key":     func(l *RequestLimits) { l.PerKey = one },
		"address": func(l *RequestLimits) { l.PerIP = one },
		"route":   func(l *RequestLimits) { l.PerRoute = one },
	} {
		t.Run(limit, func(t *testing.T) {
			server := redistest.Start(t)
			text, hash := NewKey()
			keys := NewKeys([]Key{{ID: "a", Hash: hash, Scopes: []Scope{Read}}})
			r := newRig(t, server, func(c *Config) {
				c.Keys = func() *Keys { return keys }
				c.Requests.timeout = time.Minute // as in keyed
				set(&c.Requests)
			})
			r.key = text
			for range 3 {
				if got := r.want(200, "", "GET", "/session", ""); got.header.Get("RateLimit") == "" || len(strings.Split(got.header.Get("RateLimit-Policy"), ",")) != 3 {
					t.Errorf("headers: %v", got.header)
				}
			}
			got := r.want(429, `"code":"rate_limited"`, "GET", "/session", "")
			if got.header.Get("Retry-After") == "" || !strings.Contains(got.body, limit) {
				t.Errorf("%v %s", got.header, got.body)
			}
			// Whom nobody knows uses up nothing but what the address has.
			r.key = "hg_wrong"
			want := 401
			if limit == "address" {
				want = 429
			}
			r.want(want, "", "GET", "/session", "")
			r.key = text
			if limit == "route" {
				r.want(200, "", "GET", "/lab", "")
			}
		})
	}
}

// A key's own rate is before that of all.
func TestRateOfAKey(t *testing.T) {
	r, keys := keyed(t, redistest.Start(t), Key{ID: "slow", Scopes: []Scope{Read}, Rate: throttle.Rate{Count: 2, Period: time.Hour}}, Key{ID: "other", Scopes: []Scope{Read}})
	r.key = keys["slow"]
	r.want(200, "", "GET", "/session", "")
	r.want(200, "", "GET", "/session", "")
	r.want(429, "rate_limited", "GET", "/session", "")
	r.key = keys["other"]
	r.want(200, "", "GET", "/session", "")
}

// Without Redis every answer says so, and none comes late.
func TestRedisAway(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	r := newRig(t, server, nil)
	r.want(202, "", "POST", "/jobs", r.job("acme", ""))
	server.Kill()
	got := r.do("POST", "/jobs", r.job("acme", ""))
	if got.status != 503 && got.status != 504 || got.header.Get("Retry-After") == "" {
		t.Errorf("POST: %d %s", got.status, got.body)
	}
	if got := r.want(503, "Redis does not answer", "GET", "/queues", ""); got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	r.want(200, "", "GET", "/session", "")
}

var _ http.Handler = (*API)(nil)

// TestRedisThatEvicts: the server cannot accept jobs for now, and says what is to be done.
func TestRedisThatEvicts(t *testing.T) {
	r := newRig(t, redistest.Start(t, "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"), nil)
	answer := r.want(http.StatusServiceUnavailable, "set maxmemory-policy noeviction", "POST", "/jobs", r.job("a", ""))
	if answer.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

// TestRequestIDs: each answer has an id, of the client's choice if that is usable, and a problem
// repeats it.
func TestRequestIDs(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), nil)
	r.publish(throttle.PerSecond(1))
	made := map[string]bool{}
	for _, chosen := range []string{"", "order-4711.a_B", "two words", strings.Repeat("x", 65), "a\u00e4"} {
		for _, status := range []int{200, 404} {
			path := map[int]string{200: "/queues/" + r.queue, 404: "/queues/" + r.queue + "/jobs/nobody"}[status]
			got := r.want(status, "", "GET", path, "", "X-Request-Id", chosen)
			id := got.header.Get("X-Request-Id")
			if usable := chosen == "order-4711.a_B"; usable != (id == chosen) || !usable && (id == "" || made[id]) {
				t.Errorf("%q, %d: the id is %q", chosen, status, id)
			}
			made[id] = true
			if status == 404 && got.get(t, "request") != id {
				t.Errorf("%q: the problem is of %v; want %q", chosen, got.get(t, "request"), id)
			}
		}
	}
}

// TestDeleteWithoutABody: the reason of a DELETE can be in the query, or left out.
func TestDeleteWithoutABody(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), nil)
	r.publish(throttle.PerSecond(1))
	at := "/queues/" + r.queue
	for query, reason := range map[string]string{"?reason=erasure+requested": "erasure requested", "": "no reason given"} {
		id := r.want(202, "", "POST", "/jobs", r.job("acme", "")).get(t, "id").(string)
		r.want(200, `"jobs":1`, "POST", at+"/jobs/"+id+"/cancel", `{"reason":"x"}`)
		r.want(200, `"jobs":1`, "DELETE", at+"/jobs/"+id+query, "")
		entries, err := operate.Audit(t.Context(), r.redis, r.queue, 1)
		if err != nil || len(entries) != 1 || entries[0].Action != "delete" || entries[0].Reason != reason {
			t.Errorf("%q: %+v, %v", query, entries, err)
		}
		r.want(200, `"applied":true`, "PUT", at+"/tenants/acme/limits/tenant", `{"rate":"7/s","for":"1h","reason":"x"}`)
		r.want(200, `"cleared":true`, "DELETE", at+"/tenants/acme/limits/tenant"+query, "")
	}
	r.want(400, `"field":"reason"`, "DELETE", at+"/jobs/nobody", `{"reason":""}`)
}

// TestUnknownQueue: no request makes a queue, also not by a follow-up, and none goes round limits
// by naming another queue.
func TestUnknownQueue(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	r, keys := keyed(t, redistest.Start(t), Key{ID: "free", Scopes: []Scope{Enqueue}}, Key{ID: "bound", Scopes: []Scope{Enqueue}, Queues: []string{"webhook"}})
	r.key = keys["free"]
	set := limits.Set{Queues: map[string]limits.Queue{"webhook": {Kinds: []string{"webhook"}}, "email": {Kinds: []string{"email"}}}}
	if err := operate.Publish(t.Context(), r.redis, set); err != nil {
		t.Fatal(err)
	}
	before := r.redis.SCard(t.Context(), "asynq:queues").Val()
	job := func(kind, queue, more string) string {
		return fmt.Sprintf(`{"kind":%q,"queue":%q,"tenant":"a","payload":1%s}`, kind, queue, more)
	}
	for body, want := range map[string]string{
		job("call", "webhok", ""):   `did you mean \"webhook\"?","code":"unknown_queue"`,
		job("email", "webhook", ""): `\"webhook\" is not for kind \"email\", whose queue is \"email\"","code":"invalid"`,
		job("call", "email", ""):    `no queue serves \"call\"`,
		job("email", "email", `,"on_success":`+job("call", "made-up", "")): `"field":"on_success.queue"`,
		`{"kind":"email","queue":"emial","tenant":"","payload":1}`:         `"field":"tenant"`,
	} {
		r.want(400, want, "POST", "/jobs", body)
	}
	jobs := testlong.Of(10_000, 100_000)
	var all strings.Builder
	for i := range jobs {
		all.WriteString(job("call", fmt.Sprint("made-up-", i), "") + "\n")
	}
	commands := func() (n int) {
		for line := range strings.Lines(r.redis.Info(t.Context(), "stats").Val()) {
			_, _ = fmt.Sscanf(line, "total_commands_processed:%d", &n)
		}
		return n
	}
	for _, key := range []string{r.key, keys["bound"]} {
		r.key = key
		made := commands()
		r.want(207, fmt.Sprintf(`"accepted":0,"existing":0,"refused":%d`, jobs), "POST", "/jobs/batch", all.String(), "Content-Type", ndjson)
		if made = commands() - made; made > jobs/10 {
			t.Errorf("%d commands for %d jobs of unknown queues; want none for a job", made, jobs)
		}
	}
	if after := r.redis.SCard(t.Context(), "asynq:queues").Val(); after != before {
		t.Errorf("%d queues; there were %d", after, before)
	}
}

// TestUnregisterOverHTTP: only a key for everything removes queues.
func TestUnregisterOverHTTP(t *testing.T) {
	r, keys := keyed(t, redistest.Start(t), Key{ID: "ops", Scopes: []Scope{Admin}}, Key{ID: "shift", Scopes: []Scope{Operate}}, Key{ID: "one", Scopes: []Scope{Admin}, Queues: []string{"other"}})
	for id, want := range map[string]string{"shift": "no key with the scope", "one": "not valid for this queue"} {
		r.key = keys[id]
		if got := r.do("DELETE", "/queues/"+r.queue, ""); got.status != 403 {
			t.Errorf("key %s: %d %s; want 403, %s", id, got.status, got.body, want)
		}
	}
	r.key = keys["ops"]
	r.want(202, "", "POST", "/jobs", r.job("acme", ""))
	r.want(409, "is served by worker", "DELETE", "/queues/"+r.queue, `{"reason":"x"}`)
	r.redis.Del(t.Context(), "headgate:workers")
	r.want(409, "has jobs, 1 of them", "DELETE", "/queues/"+r.queue, `{"reason":"x"}`)
	r.want(200, `"jobs":1`, "POST", "/queues/"+r.queue+"/actions", `{"verb":"cancel","reason":"x"}`)
	r.want(200, `"jobs":1`, "POST", "/queues/"+r.queue+"/actions", `{"verb":"delete","reason":"x"}`)
	r.want(200, `"removed":true`, "DELETE", "/queues/"+r.queue, `{"reason":"x"}`)
	r.want(404, "There is no queue", "GET", "/queues/"+r.queue, "")
}
