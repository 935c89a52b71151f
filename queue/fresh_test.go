package queue

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/redisscript"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// Jobs that enqueue_fresh.lua accepts, and jobs that it leaves to enqueue.lua.
var (
	freshJobs = map[string]func(*Job){
		"usual":             func(*Job) {},
		"with attributes":   func(job *Job) { job.Attributes = map[string]string{"region": "eu west", "other": "x"} },
		"with an end":       func(job *Job) { job.Retention = time.Hour },
		"with its attempts": func(job *Job) { job.MaxAttempts = 3 },
		"large":             func(job *Job) { job.Payload = json.RawMessage(`"` + strings.Repeat("x", 1000) + `"`) },
	}
	otherJobs = map[string]func(*Job){
		"with a key":        func(job *Job) { job.Key = "k" },
		"with a freed key":  func(job *Job) { job.Key, job.KeyUntil = "k", Ended },
		"with a deadline":   func(job *Job) { job.Deadline = time.Now().Add(time.Hour) },
		"for later":         func(job *Job) { job.In = time.Hour },
		"with a cost":       func(job *Job) { job.Cost = 2 },
		"with costs":        func(job *Job) { job.Costs = map[string]int64{"token": 2} },
		"of high priority":  func(job *Job) { job.Priority = High },
		"with a follow-up":  func(job *Job) { job.OnSuccess = &Job{Kind: "call", Queue: job.Queue, Payload: json.RawMessage(`{}`)} },
		"for an empty lane": func(job *Job) { job.Tenant = "b" },
	}
)

var (
	freshScript = limitlua.NewScript(store.Lua("enqueue_fresh"), asynqwire.Lua, store.Lua("formats"), store.Lua("lanes"))
	fullScript  = store.NewScript(store.Lua("enqueue"))
)

// twins is two queues in the same state, each with one waiting job of tenant a.
func twins(t *testing.T, shape limits.Queue, damage func(client redis.UniversalClient, queue, lane string)) (clients [2]*Client, queues [2]string) {
	t.Helper()
	for i := range queues {
		client := NewClient(redistest.Any(t).Client())
		clients[i], queues[i] = client, redistest.Queue(t)
		all := limits.Set{Queues: map[string]limits.Queue{queues[i]: shape}}
		if err := operate.Publish(t.Context(), client.redis, all); err != nil {
			t.Fatal(err)
		}
		job := Job{Kind: "call", Queue: queues[i], Tenant: "a", Payload: json.RawMessage(`{}`)}
		for _, edit := range []func(*Job){freshJobs["usual"], freshJobs["with attributes"]} {
			edit(&job)
			if _, err := client.Enqueue(t.Context(), job); err != nil {
				t.Fatal(err)
			}
		}
		if damage != nil {
			damage(client.redis, queues[i], "a;kind=call")
		}
	}
	return clients, queues
}

// enqueueBy runs a script for a job.
func enqueueBy(t *testing.T, client *Client, script *redisscript.Script, queue string, edit func(*Job)) string {
	t.Helper()
	job := Job{Kind: "call", Queue: queue, Tenant: "a", Payload: json.RawMessage(`{"n":1}`)}
	edit(&job)
	a, err := client.accept(t.Context(), job, queue, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	r := client.newRequest([]accepted{a})
	reply, err := script.Run(t.Context(), client.redis, store.ScriptKeys(queue), r.args...)
	return anyCode.ReplaceAllString(strings.ReplaceAll(fmt.Sprint(reply, err), queue, "QUEUE"), "CODE")
}

var (
	anyID   = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	anyTime = regexp.MustCompile(`\b[0-9]{15,16}\b`)
	anyLine = regexp.MustCompile(`:answers:\w+`)
	anyCode = regexp.MustCompile(`user_script:\d+`)
)

// written returns all data of a queue, except what always differs between two queues: ids,
// times and lines. Of the scores of sorted sets, only their order is kept.
func written(t *testing.T, c *Client, queue string) string {
	t.Helper()
	client := c.redis
	var lines []string
	for _, key := range redistest.Keys(t, client, "*{"+queue+"}*") {
		if strings.Contains(key, "}:audit") {
			continue // of the limits, which are published before
		}
		var value any
		switch kind := client.Type(t.Context(), key).Val(); kind {
		case "string":
			value = client.Get(t.Context(), key).Val()
		case "hash":
			value = client.HGetAll(t.Context(), key).Val()
		case "zset":
			value = client.ZRange(t.Context(), key, 0, -1).Val()
		case "set":
			value = slices.Sorted(slices.Values(client.SMembers(t.Context(), key).Val()))
		case "list":
			value = client.LRange(t.Context(), key, 0, -1).Val()
		default:
			t.Fatalf("%s is a %s", key, kind)
		}
		line := strings.ReplaceAll(fmt.Sprintf("%s (%v): %q", key, client.TTL(t.Context(), key).Val().Round(time.Minute), value), queue, "QUEUE")
		for with, any := range map[string]*regexp.Regexp{"ID": anyID, "TIME": anyTime, ":answers:LINE": anyLine, "CODE": anyCode} {
			line = any.ReplaceAllString(line, with)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestFreshJobsAreWrittenAlike: for jobs that it accepts, enqueue_fresh.lua returns and
// writes the same as enqueue.lua. For other jobs it changes nothing.
func TestFreshJobsAreWrittenAlike(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	one := limits.Queue{Limits: []limits.Limit{{Name: "region", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(10), Burst: 1, Per: []string{"region"}}}}
	for _, shape := range []limits.Queue{{}, one} {
		for name, edit := range freshJobs {
			clients, queues := twins(t, shape, nil)
			got, want := enqueueBy(t, clients[0], freshScript, queues[0], edit), enqueueBy(t, clients[1], fullScript, queues[1], edit)
			if got != want || got != "[[1]] <nil>" {
				t.Errorf("%s: answered with %s, want %s", name, got, want)
			}
			if got, want := written(t, clients[0], queues[0]), written(t, clients[1], queues[1]); got != want {
				t.Errorf("%s: Redis holds\n%s\nwant\n%s", name, got, want)
			}
		}
	}
	for name, edit := range otherJobs {
		clients, queues := twins(t, limits.Queue{}, nil)
		if got := enqueueBy(t, clients[0], freshScript, queues[0], edit); got != "<nil>redis: nil" {
			t.Errorf("%s: answered with %s", name, got)
		}
		if got, want := written(t, clients[0], queues[0]), written(t, clients[1], queues[1]); got != want {
			t.Errorf("%s: Redis holds\n%s\nwant\n%s", name, got, want)
		}
	}
	for name, shape := range map[string]limits.Queue{"a cap of tenants": {MaxBacklog: 9}, "a cap of the queue": {MaxQueue: 9}} {
		clients, queues := twins(t, shape, nil)
		if got := enqueueBy(t, clients[0], freshScript, queues[0], func(*Job) {}); got != "<nil>redis: nil" {
			t.Errorf("%s: answered with %s", name, got)
		}
	}
}

// TestFreshJobMeetsDamage: if a key is damaged, the answer and the data are the same as with
// enqueue.lua.
func TestFreshJobMeetsDamage(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	set := func(name string) func(redis.UniversalClient, string, string) {
		return func(client redis.UniversalClient, queue, _ string) {
			client.Set(t.Context(), store.Key(queue, name), "x", 0)
		}
	}
	field := func(name, field, value string) func(redis.UniversalClient, string, string) {
		return func(client redis.UniversalClient, queue, _ string) {
			client.HSet(t.Context(), store.Key(queue, name), field, value)
		}
	}
	damages := map[string]func(client redis.UniversalClient, queue, lane string){
		"tenants is a string": set("tenants"), "totals is a string": set("totals"), "limits is a string": set("limits"),
		"the counts of all are none": field("tenants", "*", "x"), "the counts of the tenant are none": field("tenants", "a", "x"),
		"the tenant has below 0 jobs": field("tenants", "a", "-1 0 1 1"), "enqueued is no number": field("totals", "enqueued", "x"),
		"enqueued is full": field("totals", "enqueued", "9223372036854775807"), "limits are no JSON": field("limits", "*", "x"),
		"limits are of another order": field("limits", "*", `{"limits":[],"attributes":["kind"]}`),
		"the lane is a string": func(client redis.UniversalClient, queue, lane string) {
			client.Set(t.Context(), asynqwire.Key(queue, "g:"+lane), "x", 0)
		},
		"the lane is gone": func(client redis.UniversalClient, queue, lane string) {
			client.Del(t.Context(), asynqwire.Key(queue, "g:"+lane))
		},
	}
	for _, name := range slices.Sorted(maps.Keys(damages)) {
		clients, queues := twins(t, limits.Queue{}, damages[name])
		got, want := enqueueBy(t, clients[0], store.EnqueueScript, queues[0], func(*Job) {}), enqueueBy(t, clients[1], fullScript, queues[1], func(*Job) {})
		if got != want {
			t.Errorf("%s: answered with %s, want %s", name, got, want)
		}
		if got, want := written(t, clients[0], queues[0]), written(t, clients[1], queues[1]); got != want {
			t.Errorf("%s: Redis holds\n%s\nwant\n%s", name, got, want)
		}
	}
}

// TestAnswersOfALine: Redis keeps only the answers to the latest request of a line. That
// request can be repeated, and an earlier one is rejected.
func TestAnswersOfALine(t *testing.T) {
	t.Parallel()
	server, queue := redistest.Any(t), redistest.Queue(t)
	own := redis.NewUniversalClient(server.Options())
	t.Cleanup(func() { own.Close() })
	seen := &tries{}
	var first redis.Cmder
	seen.send = func(try int, send func() error) error {
		if try == 2 {
			first = seen.last
		}
		return send()
	}
	client := NewClient(own)
	enqueue := func() {
		if _, err := client.Enqueue(t.Context(), Job{Kind: "call", Queue: queue, Tenant: "a", Payload: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	enqueue()
	own.AddHook(redistest.OnCommand(seen.on))
	for range 9 {
		enqueue()
	}
	kept := redistest.Keys(t, server.Client(), store.Key(queue, "answers:*"))
	if len(kept) != 1 {
		t.Fatalf("the answers to 10 calls are in %q; want one key", kept)
	}
	if got := server.Client().Get(t.Context(), kept[0]).Val(); got != "10 [[1]]" {
		t.Errorf("kept is %q", got)
	}
	if ttl := server.Client().PTTL(t.Context(), kept[0]).Val(); ttl < 2*repeatFor-10*time.Second || ttl > 2*repeatFor {
		t.Errorf("kept for %v", ttl)
	}
	reply, err := server.Client().Do(t.Context(), first.Args()...).Result()
	if err == nil || !strings.Contains(err.Error(), "a later call was answered") {
		t.Errorf("an earlier call is answered with %v, %v", reply, err)
	}
	// Meanwhile the job of the latest request is done.
	lane := asynqwire.Key(queue, "g:a;kind=call")
	if gone := server.Client().ZPopMax(t.Context(), lane).Val(); len(gone) != 1 {
		t.Fatal("no job waits")
	}
	if reply, err := server.Client().Do(t.Context(), seen.last.Args()...).Result(); fmt.Sprint(reply) != "[[1]]" || err != nil {
		t.Errorf("the latest call, made again, is answered with %v, %v", reply, err)
	}
	if n := server.Client().ZCard(t.Context(), lane).Val(); n != 9 {
		t.Errorf("%d jobs wait; want 9", n)
	}
}

// TestLinesOfRequests: a request uses the line of an answered request, unless that was sent
// more than once. Two concurrent requests have two lines.
func TestLinesOfRequests(t *testing.T) {
	t.Parallel()
	client := NewClient(nil)
	next := func() *request { return client.newRequest([]accepted{{home: "q"}}) }
	first := next()
	client.freeLine(first)
	second, third := next(), next()
	if second.args[1] != first.args[1] || first.args[2] != int64(1) || second.args[2] != int64(2) {
		t.Errorf("two requests, one after the other: %v, %v", first.args[:4], second.args[:4])
	}
	if third.args[1] == second.args[1] {
		t.Errorf("two requests at a time: %v, %v", second.args[:4], third.args[:4])
	}
	second.unknown = time.Now()
	client.freeLine(second) // as each caller that shares it does
	client.freeLine(second)
	if fourth := next(); fourth.args[1] == second.args[1] {
		t.Errorf("after %v, which was sent twice: %v", second.args[:4], fourth.args[:4])
	}
}

// TestFreshLeavesWhatIsDamaged: enqueue_fresh.lua changes nothing, and leaves the job to enqueue.lua, if the counts of its
// tenant miss the jobs that wait, or if something else has the key of its task.
func TestFreshLeavesWhatIsDamaged(t *testing.T) {
	t.Parallel()
	clients, queues := twins(t, limits.Queue{}, nil)
	client, queue := clients[0].redis, queues[0]
	a, err := clients[0].accept(t.Context(), Job{Kind: "call", Queue: queue, Tenant: "a"}, queue, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a.id = "taken"
	counts, enqueued := client.HGet(t.Context(), store.TenantsKey(queue), "a").Val(), client.HGet(t.Context(), store.Key(queue, "totals"), "enqueued").Val()
	for what, damage := range map[string]func(){
		"a key of another type": func() { client.Set(t.Context(), asynqwire.Key(queue, "t:taken"), "x", 0) },
		"counts without jobs": func() {
			client.HSet(t.Context(), store.TenantsKey(queue), "a", "0"+counts[strings.Index(counts, " "):])
		},
	} {
		damage()
		reply, err := freshScript.Run(t.Context(), client, store.ScriptKeys(queue), clients[0].newRequest([]accepted{a}).args...)
		if !errors.Is(err, redis.Nil) {
			t.Errorf("%s: %v, %v", what, reply, err)
		}
		if n := client.HGet(t.Context(), store.Key(queue, "totals"), "enqueued").Val(); n != enqueued {
			t.Errorf("%s: %s jobs were enqueued, want %s", what, n, enqueued)
		}
		client.Del(t.Context(), asynqwire.Key(queue, "t:taken"))
		client.HSet(t.Context(), store.TenantsKey(queue), "a", counts)
	}
}

// TestFreshOfAnotherLayout: enqueue_fresh.lua leaves a job whose client knows other partitions to enqueue.lua,
// which refuses it.
func TestFreshOfAnotherLayout(t *testing.T) {
	t.Parallel()
	clients, queues := twins(t, limits.Queue{}, nil)
	a, err := clients[0].accept(t.Context(), Job{Kind: "call", Queue: queues[0], Tenant: "a"}, queues[0], time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for layout, want := range map[string]string{"": "[[1]] <nil>", "another": "<nil> redis: nil"} {
		a.id, a.layout = "job of "+layout, layout
		r := clients[0].newRequest([]accepted{a})
		reply, err := freshScript.Run(t.Context(), clients[0].redis, store.ScriptKeys(queues[0]), r.args...)
		if got := fmt.Sprint(reply, " ", err); got != want {
			t.Errorf("layout %q: %s; want %s", layout, got, want)
		}
	}
}
