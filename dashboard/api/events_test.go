package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// watching reads a stream.
type watching struct {
	t     testing.TB
	lines *bufio.Reader
	end   context.CancelFunc
}

func (r *rig) watch(query string) *watching {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	r.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, "GET", r.server.URL+Base+"/events"+query, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.key != "" {
		request.Header.Set("Authorization", "Bearer "+r.key)
	}
	response, err := r.http.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != 200 || response.Header.Get("Content-Type") != "text/event-stream" {
		r.t.Fatalf("%s %s", response.Status, response.Header.Get("Content-Type"))
	}
	return &watching{r.t, bufio.NewReader(response.Body), cancel}
}

// next returns the next event of a name.
func (w *watching) next(name string) map[string]any {
	w.t.Helper()
	return w.until(name, func(map[string]any) bool { return true })
}

// until skips events until one of a name is as it should be, which may take a minute.
func (w *watching) until(name string, is func(map[string]any) bool) map[string]any {
	w.t.Helper()
	patience := time.AfterFunc(time.Minute, w.end)
	defer patience.Stop()
	event, last := "", "nothing"
	for {
		line, err := w.lines.ReadString('\n')
		if err != nil {
			w.t.Fatalf("the stream ended before the %q that was waited for: %v; it said last: %s", name, err, last)
		}
		if rest, ok := strings.CutPrefix(line, "event: "); ok {
			event = strings.TrimSpace(rest)
		}
		rest, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		last = event + " " + rest
		if event != name {
			continue
		}
		var data map[string]any
		if err := json.Unmarshal([]byte(rest), &data); err != nil {
			w.t.Fatal(err)
		}
		if is(data) {
			return data
		}
	}
}

// seenQueue is what an overview tells of a queue; nil: nothing.
func seenQueue(overview map[string]any, name string) map[string]any {
	for _, q := range overview["queues"].([]any) {
		if q := q.(map[string]any); q["queue"] == name {
			return q
		}
	}
	return nil
}

func TestEvents(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	r := newRig(t, server, nil)
	r.publish(throttle.PerSecond(1000))
	stream := r.watch("")
	stream.until("overview", func(o map[string]any) bool { return seenQueue(o, r.queue) != nil })
	stream.until("history", func(h map[string]any) bool { return h["queue"] == r.queue }) // the first second that is seen in whole
	r.want(200, "", "POST", "/queues/"+r.queue+"/pause", `{"reason":"a try"}`)
	if entry := stream.next("audit")["entry"].(map[string]any); entry["action"] != "pause" || entry["actor"] != "local" {
		t.Errorf("the audit: %v", entry)
	}
	if err := operate.Record(t.Context(), r.redis, operate.AuditEntry{Action: "keys", After: map[string]string{"shop": "read"}}, operate.Operator{Reason: "a try"}); err != nil {
		t.Fatal(err)
	}
	if entry := stream.next("audit")["entry"].(map[string]any); entry["action"] != "keys" {
		t.Errorf("the audit of keys: %v", entry)
	}
	r.want(202, "", "POST", "/jobs", r.job("acme", ""))
	stream.until("overview", func(o map[string]any) bool { return seenQueue(o, r.queue)["waiting"] == 1.0 })

	options, err := queue.ParseRedisURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	worker, err := queue.New(queue.Config{Redis: options, Queues: []string{r.queue}})
	if err != nil {
		t.Fatal(err)
	}
	queue.Handle(worker, "call", func(context.Context, struct{ N int }) error { return nil })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	r.want(200, "", "POST", "/queues/"+r.queue+"/resume", `{"reason":"a try"}`)
	finished := stream.next("finished")["events"].([]any)
	if event := finished[0].(map[string]any); event["tenant"] != "acme" || event["answer"] != "ok" || event["queue"] != r.queue {
		t.Errorf("finished: %v", event)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	// The call is spread over the seconds between two looks, the last of which may not be over.
	history := r.want(200, `"step_seconds":1`, "GET", "/queues/"+r.queue+"/history", "")
	const rounding = 0.005 * 3 // of the hundredths of three points
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		sent := 0.0
		for _, p := range history.get(t, "points").([]any) {
			sent += p.(map[string]any)["sent"].(float64)
		}
		if math.Abs(sent-1) <= rounding {
			break
		}
		if sent > 1 || time.Now().After(deadline) {
			t.Errorf("the history has %v calls: %s", sent, history.body)
			break
		}
		history = r.do("GET", "/queues/"+r.queue+"/history", "")
	}

	// Without Redis the stream goes on and says so.
	server.Kill()
	gone := stream.until("overview", func(o map[string]any) bool { return o["redis"].(map[string]any)["ok"] == false })
	if seenQueue(gone, r.queue) == nil {
		t.Errorf("what was known is forgotten: %v", gone)
	}
	server.Restart()
	stream.until("overview", func(o map[string]any) bool { return o["redis"].(map[string]any)["ok"] == true })
}

// TestSilentRedis: one that hangs makes no error for a while, but the stream says in
// time that it does not answer: it is silence that the page takes for a server's end.
func TestSilentRedis(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	r := newRig(t, server, nil)
	r.publish(throttle.PerSecond(1000))
	stream := r.watch("")
	stream.until("overview", func(o map[string]any) bool { return seenQueue(o, r.queue) != nil })
	server.Pause()
	defer server.Resume()
	heard := time.Now()
	stream.until("overview", func(o map[string]any) bool {
		if o["redis"].(map[string]any)["ok"] == true { // it was on its way
			heard = time.Now()
			return false
		}
		return true
	})
	const silence = 8 * time.Second // dashboard/web/src/live.ts
	if passed := time.Since(heard); passed > silence {
		t.Errorf("it said nothing for %v", passed)
	}
}

// A client that does not read is ended, and holds nobody else up.
func TestSlowClient(t *testing.T) {
	w := newWatch(nil)
	slow, quick := w.add(), w.add()
	for range maxBehind + 1 {
		w.tell(seen{})
		<-quick.news
	}
	for range maxBehind {
		<-slow.news
	}
	select {
	case _, open := <-slow.news:
		if open || !slow.slow {
			t.Error("a client that does not keep up is told more")
		}
	default:
		t.Error("a client that does not keep up is not ended")
	}
	if w.tell(seen{}); len(quick.news) != 1 {
		t.Error("the others are ended, too")
	}
}

// TestStreamsShareLooks: however many watch, the queues are looked at once a second for all.
func TestStreamsShareLooks(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	const looks = 3
	server := redistest.Start(t)
	r := newRig(t, server, nil)
	r.want(202, "", "POST", "/jobs", r.job("acme", ""))
	streams := make([]*watching, 10)
	for i := range streams {
		streams[i] = r.watch("")
		streams[i].next("overview")
	}
	overviews := func() int { return redistest.Calls(t, server.Client(), "llen") / 2 } // two for each
	before := overviews()
	for range looks {
		for _, stream := range streams {
			stream.next("overview")
		}
	}
	// What was told when a stream came waits in the others, and a look may be under way.
	if n := overviews() - before; n > looks+1 {
		t.Errorf("%d overviews were read for %d looks of %d streams", n, looks, len(streams))
	}
}

func TestMostStreams(t *testing.T) {
	r := newRig(t, redistest.Shared(t), nil)
	for range maxStreams {
		if _, err := r.api.streams.take(caller{key: Key{ID: localActor}}); err != nil {
			t.Fatal(err)
		}
	}
	r.want(429, "busy", "GET", "/events", "")
}

// A stream of a key for one tenant tells of nobody else, and ends with its key.
func TestEventsOfOneTenant(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	text, hash := NewKey()
	admin, adminHash := NewKey()
	keys := NewKeys([]Key{{ID: "acme", Hash: hash, Scopes: []Scope{Read}, Tenants: []string{"acme"}}, {ID: "ops", Hash: adminHash, Scopes: []Scope{Admin}}})
	current := make(chan *Keys, 1)
	current <- keys
	r := newRig(t, server, func(c *Config) {
		c.Keys = func() *Keys {
			k := <-current
			current <- k
			return k
		}
	})
	r.key = admin
	for range 3 {
		r.want(202, "", "POST", "/jobs", r.job("globex", ""))
	}
	r.want(202, "", "POST", "/jobs", r.job("acme", ""))
	r.key = text
	stream := r.watch("")
	r.key = admin
	first := stream.until("overview", func(o map[string]any) bool { return seenQueue(o, r.queue) != nil })
	if q := seenQueue(first, r.queue); q["waiting"] != 1.0 || strings.Contains(string(mustJSON(first)), "globex") {
		t.Errorf("it is told %v", q)
	}
	r.want(200, "", "POST", "/queues/"+r.queue+"/pause", `{"tenant":"globex","reason":"x"}`)
	if err := operate.Record(t.Context(), r.redis, operate.AuditEntry{Action: "keys", After: map[string]string{"shop": "read"}}, operate.Operator{Reason: "x"}); err != nil {
		t.Fatal(err)
	}
	r.want(200, "", "POST", "/queues/"+r.queue+"/pause", `{"tenant":"acme","reason":"x"}`)
	if entry := stream.next("audit")["entry"].(map[string]any); entry["tenant"] != "acme" {
		t.Errorf("the audit of another: %v", entry)
	}
	<-current
	current <- NewKeys(nil)
	for {
		if _, err := stream.lines.ReadString('\n'); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Errorf("the stream did not end with its key: %v", err)
			}
			return
		}
	}
}

// TestOneNameForEachField: events and callbacks name what they say of a job as the job does.
func TestOneNameForEachField(t *testing.T) {
	names := func(value any) (all []string) {
		for field := range reflect.TypeOf(value).Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			all = append(all, name)
		}
		return all
	}
	job := names(jobJSON{})
	event := names(eventJSON{})
	callback := []string{"id", "queue", "kind", "tenant", "state", "outcome", "attempt", "result", "error"} // see queue.Job.Callback
	for _, name := range slices.Concat(event, callback) {
		ofTheEvent := name == "event" || name == "at" || name == "answer" || name == "took_seconds"
		if !slices.Contains(job, name) && !ofTheEvent {
			t.Errorf("%q is no field of a job, which has %q", name, job)
		}
	}
}
