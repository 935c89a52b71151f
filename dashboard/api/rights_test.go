package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/logtest"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// TestKeyOfSomeQueuesAndKinds: a key reaches no other queue and no job of another kind, by no route.
func TestKeyOfSomeQueuesAndKinds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r, keys := keyed(t, server, Key{ID: "ops", Scopes: []Scope{Admin}},
		Key{ID: "queue", Scopes: []Scope{Admin}, Queues: []string{"mine"}},
		Key{ID: "kind", Scopes: []Scope{Enqueue, Read, Operate}, Kinds: []string{"mail"}},
		Key{ID: "kinds", Scopes: []Scope{Read}, Kinds: []string{"mail", "call"}})
	limit := limits.Limit{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1), Per: []string{"tenant"}}
	publish := func(of ...limits.Limit) {
		t.Helper()
		if err := operate.Publish(t.Context(), r.redis, limits.Set{Queues: map[string]limits.Queue{
			"mine": {Limits: of}, "theirs": {Kinds: []string{"routed", "mail", "webhook"}, Limits: of},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	publish(limit)
	job := func(queue, kind string) string {
		return fmt.Sprintf(`{"queue":%q,"kind":%q,"tenant":"acme","payload":1}`, queue, kind)
	}
	r.key = keys["ops"]
	other := r.want(202, "", "POST", "/jobs", job("theirs", "routed")).get(t, "id").(string)
	mail := r.want(202, "", "POST", "/jobs", job("theirs", "mail")).get(t, "id").(string)

	r.key = keys["queue"]
	r.want(202, `"queue":"mine"`, "POST", "/jobs", job("mine", "mail"))
	r.want(403, "not valid for queue theirs", "POST", "/jobs", job("theirs", "mail"))
	r.want(403, "not valid for queue theirs", "POST", "/jobs", `{"kind":"routed","tenant":"acme","payload":1}`) // goes there unless told otherwise
	r.want(403, "not valid for queue theirs", "POST", "/jobs", strings.TrimSuffix(job("mine", "mail"), "}")+`,"on_failure":`+job("theirs", "mail")+"}")
	for _, callback := range []string{`,"callback":"https://a.example/"}`, `,"on_success":` + strings.TrimSuffix(job("mine", "mail"), "}") + `,"callback":"https://a.example/"}}`} {
		r.want(403, "not valid for queue theirs", "POST", "/jobs", strings.TrimSuffix(job("mine", "mail"), "}")+callback)
	}
	r.want(207, `"refused":1`, "POST", "/jobs/batch", job("mine", "mail")+"\n"+job("theirs", "mail"), "Content-Type", ndjson)
	for _, path := range []string{"", "/history", "/shares", "/tenants", "/tenants/acme", "/jobs?state=waiting", "/jobs/" + mail, "/failures", "/conformance", "/limits", "/limits/file"} {
		r.want(403, "not valid for this queue", "GET", "/queues/theirs"+path, "")
		if path != "/jobs/"+mail {
			r.want(200, "", "GET", "/queues/mine"+path, "")
		}
	}
	for _, path := range []string{"/workers", "/providers", "/limits/reload"} {
		r.want(403, "about all queues", "GET", path, "")
	}
	for _, path := range []string{"/queues", "/audit"} {
		if got := r.want(200, "", "GET", path, ""); strings.Contains(got.body, "theirs") {
			t.Errorf("%s tells of another queue: %s", path, got.body)
		}
	}
	stream := r.watch("")
	for range 2 {
		if told := string(mustJSON(stream.next("overview"))); strings.Contains(told, "theirs") {
			t.Errorf("the stream tells of another queue: %s", told)
		}
	}
	r.want(200, "", "POST", "/queues/mine/pause", `{"reason":"x","for":"1s"}`)
	spend := limits.Limit{Name: "spend", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 9, Months: 1}, Location: time.UTC, Unit: "cents", Queues: []string{"mine", "theirs"}}
	publish(limit, spend)
	r.want(403, "not valid for them", "GET", "/queues/mine/limits/file", "") // which has theirs, too

	r.key = keys["kind"]
	r.want(202, "", "POST", "/jobs", job("mine", "mail"))
	r.want(403, "not valid for this kind", "POST", "/jobs", job("mine", "call"))
	r.want(403, "not valid for this kind", "POST", "/jobs", strings.TrimSuffix(job("mine", "mail"), "}")+`,"on_success":`+job("mine", "call")+"}")
	r.want(403, "not valid for this kind", "POST", "/jobs", strings.TrimSuffix(job("mine", "mail"), "}")+`,"callback":"https://a.example/"}`)
	at := "/queues/theirs"
	r.want(404, "There is no job", "GET", at+"/jobs/"+other, "")
	r.want(200, "", "GET", at+"/jobs/"+mail, "")
	if got := r.want(200, mail, "GET", at+"/jobs?state=waiting", ""); strings.Contains(got.body, other) {
		t.Errorf("jobs of another kind are listed: %s", got.body)
	}
	r.want(403, "not valid for this kind", "GET", at+"/jobs?state=waiting&kind=routed", "")
	r.want(404, "There is no job", "POST", at+"/jobs/"+other+"/cancel", `{"reason":"x"}`)
	r.want(403, "single kinds", "POST", at+"/actions", `{"verb":"cancel","reason":"x"}`)
	r.want(403, "not valid for this kind", "POST", at+"/actions", `{"verb":"cancel","kind":"routed","reason":"x"}`)
	r.want(403, "single kinds", "POST", at+"/pause", `{"tenant":"acme","reason":"x"}`)
	r.want(403, "all kinds", "PUT", at+"/tenants/acme/limits/tenant", `{"rate":"1/m","reason":"x"}`)
	r.want(403, "single tenants or kinds", "GET", at+"/failures", "")
	r.want(403, "single tenants or kinds", "GET", at+"/conformance", "")
	r.want(200, `"jobs":1`, "POST", at+"/actions", `{"verb":"cancel","kind":"mail","reason":"x"}`)
	r.want(200, `"waiting":1`, "GET", at, "")

	r.key = keys["ops"]
	group := r.want(200, "", "GET", at+"/failures", "").get(t, "groups").([]any)[0].(map[string]any)
	for _, name := range []string{"kind", "kinds"} {
		r.key = keys[name]
		for kind, status := range map[string]int{"mail": 200, "routed": 403} {
			this := mustJSON(map[string]any{"outcome": group["outcome"], "kind": kind, "reason": group["reason"]})
			got := r.do("GET", at+"/jobs?state=archived&group="+url.QueryEscape(string(this)), "")
			if got.status != status || status == 200 && !strings.Contains(got.body, mail) {
				t.Errorf("the key for %s lists a group of kind %s: %d %s", name, kind, got.status, got.body)
			}
		}
	}
}

// TestStreamOfSome: as the history's route, the stream tells how much a whole queue does to nobody whose key is for some of
// its tenants or kinds.
func TestStreamOfSome(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		key   Key
		tells bool
	}{
		"all":    {Key{Scopes: []Scope{Read}}, true},
		"queue":  {Key{Scopes: []Scope{Read}, Queues: []string{"mine"}}, true},
		"other":  {Key{Scopes: []Scope{Read}, Queues: []string{"other"}}, false},
		"kind":   {Key{Scopes: []Scope{Read}, Kinds: []string{"mail"}}, false},
		"tenant": {Key{Scopes: []Scope{Read}, Tenants: []string{"acme"}}, false},
	} {
		s := &teller{r: &request{caller: caller{key: test.key}}}
		if text := s.text(seen{ended: []newSeconds{{queue: "mine"}}}); strings.Contains(string(text), "event: history") != test.tells {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// TestOperateIsNotAdmin: a key without admin changes nothing that others share, and raises no
// limit. A key for single tenants cannot have admin.
func TestOperateIsNotAdmin(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r, keys := keyed(t, server, Key{ID: "ops", Scopes: []Scope{Admin}}, Key{ID: "op", Scopes: []Scope{Operate}},
		Key{ID: "acme", Scopes: []Scope{Operate}, Tenants: []string{"acme"}})
	r.publish(throttle.PerSecond(10))
	at := "/queues/" + r.queue
	r.key = keys["ops"]
	id := r.want(202, "", "POST", "/jobs", r.job("acme", "")).get(t, "id").(string)
	limit := at + "/tenants/acme/limits/tenant"
	for _, name := range []string{"op", "acme"} {
		r.key = keys[name]
		r.want(403, "scope admin", "POST", at+"/jobs/"+id+"/run", `{"reason":"x"}`)
		r.want(403, "scope admin", "POST", at+"/actions", `{"verb":"run","tenant":"acme","reason":"x"}`)
		r.want(403, "", "POST", at+"/pause", `{"reason":"x"}`)
		r.want(403, "", "POST", at+"/pause", `{"kind":"call","reason":"x"}`)
		r.want(403, "", "POST", at+"/resume", `{"reason":"x"}`)
		for _, change := range []string{`"rate":"11/s"`, `"burst":2`, `"rate":"601/m"`, `"rate":"5/s","burst":3`} {
			r.want(403, "raise the limit", "PUT", limit, `{`+change+`,"reason":"x"}`)
		}
		r.want(200, `"applied":true`, "PUT", limit, `{"rate":"5/s","reason":"x"}`)
		r.want(200, `"applied":true`, "PUT", limit, `{"rate":"10/s","reason":"its own may be set back"}`)
		r.want(200, `"cleared":true`, "DELETE", limit, "")
		r.want(200, "", "POST", at+"/pause", `{"tenant":"acme","reason":"x"}`)
		r.want(200, "", "POST", at+"/resume", `{"tenant":"acme","reason":"x"}`)
	}
	r.key = keys["ops"]
	r.want(200, "", "PUT", limit, `{"rate":"1/s","reason":"acme is held down"}`)
	r.key = keys["acme"]
	r.want(403, "made by somebody else", "PUT", limit, `{"rate":"9/s","reason":"x"}`)
	r.want(403, "made by somebody else", "DELETE", limit, "")
	if err := (Key{ID: "a", Hash: Hash{1}, Scopes: []Scope{Admin}, Tenants: []string{"acme"}}).Validate(); err == nil {
		t.Error("a key of one tenant can have admin")
	}
}

// TestMailFrom: a key sends mail from its own domains only.
func TestMailFrom(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	text, hash := NewKey()
	set := NewKeys([]Key{{ID: "acme", Hash: hash, Scopes: []Scope{Enqueue}, From: []string{"acme.example"}}})
	r := newRig(t, server, func(c *Config) {
		c.Keys = func() *Keys { return set }
		c.SenderDomain = func(_ string, payload json.RawMessage) string {
			var mail struct{ From string }
			_ = json.Unmarshal(payload, &mail)
			_, domain, _ := strings.Cut(mail.From, "@")
			return domain
		}
	})
	r.key = text
	mail := func(from, more string) string {
		return strings.Replace(r.job("acme", more), `{"n":1}`, `{"from":"`+from+`"}`, 1)
	}
	r.want(202, "", "POST", "/jobs", mail("a@acme.example", ""))
	r.want(403, "may not send mail from ", "POST", "/jobs", mail("a@evil.example", ""))
	r.want(403, "may not send mail from ", "POST", "/jobs", mail("a@acme.example", `,"on_success":`+mail("a@evil.example", "")))
	r.want(207, "may not send mail from ", "POST", "/jobs/batch", mail("a@acme.example", "")+"\n"+mail("a@evil.example", ""), "Content-Type", ndjson)
}

// TestAccountsOfKeys: jobs of a key with tenants are called with the tenants' own accounts, unless
// the key may use the worker's; and no key keeps jobs for longer than it may.
func TestAccountsOfKeys(t *testing.T) {
	t.Parallel()
	r, keys := keyed(t, redistest.Start(t),
		Key{ID: "all", Scopes: []Scope{Enqueue}}, Key{ID: "own", Scopes: []Scope{Enqueue}, Tenants: []string{"acme"}, MaxRetention: 48 * time.Hour},
		Key{ID: "shared", Scopes: []Scope{Enqueue}, Tenants: []string{"acme"}, SharedAccount: true})
	for id, want := range map[string]string{"all": "", "own": "own", "shared": "shared"} {
		r.key = keys[id]
		r.want(202, "", "POST", "/jobs", r.job("acme", `,"key":"`+id+`","on_success":`+r.job("acme", "")))
		r.want(202, "", "POST", "/jobs/batch", r.job("acme", `,"key":"batch `+id+`"`), "Content-Type", ndjson)
		for _, key := range []string{id, "batch%20" + id} {
			task := r.redis.HMGet(t.Context(), "asynq:{"+r.queue+"}:t:acme:"+key, "msg", "hg_next").Val()
			if message, _ := task[0].(string); strings.Contains(message, "headgate-account") != (want != "") || !strings.Contains(message, want) {
				t.Errorf("the job of key %s: %q; want the account %q", id, message, want)
			}
			if next, _ := task[1].(string); key == id && !strings.Contains(next, `"Account":"`+want+`"`) {
				t.Errorf("the follow-up of key %s: %q; want the account %q", id, next, want)
			}
		}
	}
	r.key = keys["own"]
	r.want(202, "", "POST", "/jobs", r.job("acme", `,"retention":"48h"`))
	r.want(403, "at most 48h0m0s, not for 49h0m0s", "POST", "/jobs", r.job("acme", `,"retention":"49h"`))
	r.want(403, "at most 48h0m0s, not for 49h0m0s", "POST", "/jobs", r.job("acme", `,"on_success":`+r.job("acme", `,"retention":"49h"`)))
}

// TestNarrowedKey: what a key may do is asked again at each chunk of a batch and each event of a
// stream.
func TestNarrowedKey(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	text, hash := NewKey()
	var set atomic.Pointer[Keys]
	is := func(scopes []Scope, tenants ...string) {
		set.Store(NewKeys([]Key{{ID: "k", Hash: hash, Scopes: scopes, Tenants: tenants}}))
	}
	is([]Scope{Enqueue, Read})
	r := newRig(t, server, func(c *Config) { c.Keys = set.Load })
	r.key = text

	// A batch whose key is narrowed, and then revoked, while it comes.
	from, to := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), "POST", r.server.URL+Base+"/jobs/batch", from)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", ndjson)
	request.Header.Set("Authorization", "Bearer "+text)
	got := make(chan batchAnswer, 1)
	go func() {
		var answer batchAnswer
		response, err := r.http.Do(request)
		if err == nil {
			defer response.Body.Close()
			err = json.NewDecoder(response.Body).Decode(&answer)
		}
		if err != nil {
			t.Error(err)
		}
		got <- answer
	}()
	w := bufio.NewWriter(to)
	chunk := func(waiting int64) {
		t.Helper()
		for range chunkLines {
			fmt.Fprintln(w, r.job("acme", ""))
			fmt.Fprintln(w, r.job("globex", ""))
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // Redis tells nobody
			totals, err := inspect.New(r.redis).Totals(t.Context(), r.queue)
			if err != nil {
				t.Fatal(err)
			}
			if totals.Waiting == waiting {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d jobs wait; want %d", totals.Waiting, waiting)
			}
		}
	}
	chunk(2 * chunkLines)
	is([]Scope{Enqueue}, "acme")
	chunk(3 * chunkLines)
	set.Store(NewKeys(nil))
	fmt.Fprintln(w, r.job("acme", ""))
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	to.Close()
	if a := <-got; a.Accepted != 3*chunkLines || a.Refused != chunkLines || a.Stopped == nil || a.Stopped.Code != codeNoKey {
		t.Errorf("%d accepted, %d refused, stopped by %+v", a.Accepted, a.Refused, a.Stopped)
	}

	// A stream whose key is narrowed tells no more of others, and ends without the scope.
	is([]Scope{Read})
	stream := r.watch("")
	stream.until("overview", func(o map[string]any) bool {
		q := seenQueue(o, r.queue)
		return q != nil && q["waiting"] == 3.0*chunkLines
	})
	is([]Scope{Read}, "acme")
	stream.until("overview", func(o map[string]any) bool {
		q := seenQueue(o, r.queue)
		return q != nil && q["waiting"] == 2.0*chunkLines && q["enqueued"] == nil
	})
	is([]Scope{Enqueue}, "acme")
	if _, err := io.Copy(io.Discard, stream.lines); err != nil {
		t.Errorf("the stream of a key that may not read any more: %v", err)
	}
}

// TestNoOracle: nobody learns from an answer whether another tenant has a job.
func TestNoOracle(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r, keys := keyed(t, server, Key{ID: "ops", Scopes: []Scope{Admin}}, Key{ID: "acme", Scopes: []Scope{Enqueue, Read, Operate}, Tenants: []string{"acme"}})
	r.publish(throttle.PerSecond(1))
	r.key = keys["ops"]
	there := r.want(202, "", "POST", "/jobs", r.job("globex", `,"key":"k"`)).get(t, "id").(string)
	r.key = keys["acme"]
	r.want(202, `"existing":false`, "POST", "/jobs", r.job("acme", `,"key":"k"`))
	none := strings.Map(func(c rune) rune {
		if c == 'a' {
			return 'b'
		}
		return c
	}, there[:len(there)-1]) + "0"
	for _, ask := range [][3]string{
		{"GET", "", ""}, {"POST", "/cancel", `{"reason":"x"}`}, {"POST", "/retry", `{"reason":"x"}`}, {"DELETE", "", `{"reason":"x"}`},
	} {
		commands := func(id string) (string, string) {
			var mu sync.Mutex
			var asked []string // the commands about the job
			r.redis.AddHook(redistest.OnRequest(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				mu.Lock()
				for _, cmd := range cmds {
					if strings.Contains(fmt.Sprint(cmd.Args()...), id) {
						asked = append(asked, cmd.Name())
					}
				}
				mu.Unlock()
				return send()
			}))
			got := r.want(404, "There is no job", ask[0], "/queues/"+r.queue+"/jobs/"+id+ask[1], ask[2])
			mu.Lock()
			defer mu.Unlock()
			return strings.ReplaceAll(got.body, id, "ID"), strings.Join(asked, ", ")
		}
		words, cost := commands(there)
		otherWords, otherCost := commands(none)
		if i := strings.Index(words, `"request`); i > 0 && words[:i] != otherWords[:i] || i < 0 && words != otherWords {
			t.Errorf("%s %s: %s\nand %s", ask[0], ask[1], words, otherWords)
		}
		if cost != "hmget" || otherCost != "hmget" {
			t.Errorf("%s %s: Redis is asked %q for another's job, and %q for none", ask[0], ask[1], cost, otherCost)
		}
	}
}

// TestChangesAreLogged: each change is in the log and the audit file at once, with who made it,
// also once Redis has dropped it. What changes nothing is not there.
func TestChangesAreLogged(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	logged := &logtest.Buffer{}
	var kept []operate.AuditEntry
	r := newRig(t, server, func(c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(logged, nil))
		c.Audit = func(e operate.AuditEntry) { kept = append(kept, e) }
	})
	r.publish(throttle.PerSecond(1))
	at := "/queues/" + r.queue
	r.want(202, "", "POST", "/jobs", r.job("acme", ""))
	r.want(202, "", "POST", "/jobs", r.job("acme", ""))
	var want []string
	for _, change := range [][4]string{
		{"POST", at + "/pause", `{"tenant":"acme","reason":"why"}`, "pause"},
		{"POST", at + "/resume", `{"tenant":"acme","reason":"why"}`, "resume"},
		{"POST", at + "/resume", `{"tenant":"acme","reason":"nothing is left"}`, ""},
		{"PUT", at + "/tenants/acme/limits/tenant", `{"rate":"2/s","reason":"why"}`, "override"},
		{"DELETE", at + "/tenants/acme/limits/tenant", `{"reason":"why"}`, "clear"},
		{"DELETE", at + "/tenants/acme/limits/tenant", `{"reason":"nothing is left"}`, ""},
		{"POST", at + "/actions", `{"verb":"cancel","tenant":"acme","dry_run":true}`, ""},
		{"POST", at + "/actions", `{"verb":"cancel","tenant":"acme","reason":"why"}`, "cancel"},
		{"POST", at + "/actions", `{"verb":"cancel","tenant":"acme","reason":"nothing is left"}`, ""},
	} {
		r.want(200, "", change[0], change[1], change[2])
		if change[3] != "" {
			want = append(want, change[3])
		}
	}
	var got []string
	for _, e := range kept {
		got = append(got, e.Action)
		if e.Actor != "local" || e.Reason != "why" || e.Queue != r.queue || e.Tenant != "acme" || e.At.IsZero() {
			t.Errorf("%+v", e)
		}
		if !strings.Contains(logged.String(), "audit.action="+e.Action+" audit.actor=local") {
			t.Errorf("the log lacks %s: %s", e.Action, logged)
		}
	}
	if !slices.Equal(got, want) || kept[len(kept)-1].Count != 2 || kept[2].After["tenant"] == "" || strings.Contains(logged.String(), "nothing is left") {
		t.Errorf("%q: %+v", got, kept)
	}
}
