package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/testlong"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/sendwindow"
	"github.com/headgate/headgate/throttle"
)

// TestScriptsOnDamagedState runs the scripts on states that no script leaves: keys of
// another type, fields with other values, missing fields, changed limits, missing
// calendars. Whatever a script does then, no job leaves the queue, released jobs are
// charged to the limits, and a script that returns an error has changed nothing. If no key of the
// whole queue is damaged, dispatch goes on with what it understands.
func TestScriptsOnDamagedState(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	states := testlong.Of(1_000, 10_000)
	d := newDamage(t)
	for i := range states {
		d.one(t, uint64(i))
		if t.Failed() {
			t.Fatalf("state %d of %d", i, states)
		}
	}
	for _, s := range d.scripts {
		if d.ran[s.name] == 0 || d.ran[s.name] == d.failed[s.name] {
			t.Errorf("%s: %d of %d runs failed; want one that is judged", s.name, d.failed[s.name], d.ran[s.name])
		}
		t.Logf("%-40s %5d runs, %5d answered with an error", s.name, d.ran[s.name], d.failed[s.name])
	}
}

// TestDispatchOnDamagedParts: whatever is damaged of single jobs, lanes and limits, dispatch goes on with the rest.
func TestDispatchOnDamagedParts(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	d := newDamage(t)
	d.scripts, d.parts = d.scripts[:1], true
	for i := range testlong.Of(300, 3_000) {
		d.one(t, uint64(i))
		if t.Failed() {
			t.Fatalf("state %d", i)
		}
	}
}

const damagedQueue = "damaged"

// damage makes damaged states and checks what scripts do with them.
type damage struct {
	client    *redis.Client
	templates []template
	scripts   []damagedScript
	ran       map[string]int
	failed    map[string]int
	parts     bool // only keys of single jobs, lanes and limits are damaged, and all lanes are due
}

// template is a healthy state.
type template struct {
	keys   []saved
	limits []limits.Limit
	text   string // of the limits in Redis
}

// saved is one key of a state.
type saved struct{ name, dump string }

type damagedScript struct {
	name  string
	again bool // the programs run it until it answers without an error
	run   func(ctx context.Context, pick *rand.Rand, s sight) error
}

// sight is a snapshot of a queue: the places of each job, and a digest of all keys.
type sight struct {
	Places  map[string][]string // by job
	Buckets map[string]string   // with their type in front
	Limits  string              // the limits in force, as they are in Redis
	Digest  string
	Fields  map[string]map[string]string // of tasks

	gone  map[string]bool // the jobs that a script is asked to delete
	whole bool            // a key of the whole queue was damaged
}

// accountLua returns the places of each job. The digest leaves out keys that a script may
// write although it changes nothing.
const accountLua = `
local out, texts = {places = {}, fields = {}, buckets = {}, limits = ''}, {}
local names = redis.call('KEYS', '*')
table.sort(names)
for _, name in ipairs(names) do
  local is = redis.call('TYPE', name).ok
  local place = string.match(name, '^asynq:{[^}]*}:(.*)$') or string.match(name, '^headgate:{[^}]*}:(archive)$')
  local ids
  if place == 'pending' or place == 'active' then
    if is == 'list' then ids = redis.call('LRANGE', name, 0, -1) end
  elseif place and (string.sub(place, 1, 2) == 'g:' or place == 'scheduled' or place == 'retry' or place == 'lease' or place == 'archived' or place == 'archive' or place == 'completed') then
    if is == 'zset' then ids = redis.call('ZRANGE', name, 0, -1) end
  elseif place and string.sub(place, 1, 2) == 't:' and is == 'hash' then
    local all, fields = redis.call('HGETALL', name), {}
    for i = 1, #all, 2 do if all[i] ~= 'msg' then fields[all[i]] = all[i + 1] end end
    out.fields[string.sub(place, 3)] = fields
  end
  if string.find(name, '}:b:', 1, true) or string.find(name, '}:permits:', 1, true) then
    local held = is == 'string' and {redis.call('GET', name)} or is == 'list' and redis.call('LRANGE', name, 0, -1)
      or is == 'zset' and redis.call('ZRANGE', name, 0, -1) or {redis.sha1hex(redis.call('DUMP', name))}
    out.buckets[name] = is .. ' ' .. table.concat(held, ' ')
  end
  for _, id in ipairs(ids or {}) do
    out.places[id] = out.places[id] or {}
    table.insert(out.places[id], place)
  end
  local text
  if is == 'hash' then -- its dump differs by the order of its fields
    local all, pairs = redis.call('HGETALL', name), {}
    for i = 1, #all, 2 do pairs[#pairs + 1] = all[i] .. ' ' .. all[i + 1] end
    table.sort(pairs)
    text = table.concat(pairs, ' ')
    if string.sub(name, -7) == ':limits' then out.limits = text end
  elseif is == 'set' then
    local all = redis.call('SMEMBERS', name)
    table.sort(all)
    text = table.concat(all, ' ')
  else
    text = redis.call('DUMP', name)
  end
  if string.sub(name, -7) ~= ':faults' then texts[#texts + 1] = name .. redis.sha1hex(text) end
end
out.digest = redis.sha1hex(table.concat(texts))
return cjson.encode(out)`

func (d *damage) account(t *testing.T) sight {
	t.Helper()
	text, err := d.client.Eval(t.Context(), accountLua, nil).Text()
	if err != nil {
		t.Fatal(err)
	}
	s := sight{gone: map[string]bool{}}
	// Lua's empty tables are lists.
	text = strings.ReplaceAll(strings.ReplaceAll(text, `"places":[]`, `"places":{}`), `"fields":[]`, `"fields":{}`)
	text = strings.ReplaceAll(text, `:[]`, `:{}`)
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return s
}

func newDamage(t *testing.T) *damage {
	server := redistest.Start(t)
	d := &damage{client: server.Client(), ran: map[string]int{}, failed: map[string]int{}}
	for _, set := range damagedLimits(t) {
		keys := d.template(t, set)
		d.templates = append(d.templates, template{keys, set.Limits, d.account(t).Limits})
	}
	d.scripts = damagedScripts(d.client)
	return d
}

// damagedLimits has the limits of the templates, with every algorithm in one of them.
func damagedLimits(t *testing.T) []limits.Queue {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	limit := func(name string, algorithm throttle.Algorithm, per ...string) limits.Limit {
		return limits.Limit{Name: name, Algorithm: algorithm, Rate: throttle.Rate{Count: 1000, Period: time.Hour}, Per: per}
	}
	hours, err := sendwindow.Parse("mon-sun 00:00-24:00 UTC")
	if err != nil {
		t.Fatal(err)
	}
	daily := limit("daily", throttle.FixedWindow, "tenant")
	daily.Rate, daily.Location = throttle.Rate{Count: 100, Period: 24 * time.Hour}, berlin
	running := limits.Limit{Name: "running", Algorithm: throttle.Concurrency, Concurrency: 3, Per: []string{"tenant"}}
	tokens := limit("tokens", throttle.TokenBucket)
	tokens.Unit, tokens.Adaptive, tokens.Burst = "tokens", true, 100
	meter := limit("meter", throttle.TokenBucket, "tenant")
	meter.Burst = 50
	bucket := limit("bucket", throttle.LeakyBucket, "tenant")
	bucket.Rate.Count = 1e8
	return []limits.Queue{
		{Kinds: []string{"call"}, Limits: []limits.Limit{limit("account", throttle.FixedWindow), running, daily}, MaxBacklog: 1000},
		{Kinds: []string{"call", "mail"}, Limits: []limits.Limit{
			limit("account", throttle.FixedWindow), limit("log", throttle.SlidingWindowLog, "tenant"), limit("counter", throttle.SlidingWindowCounter, "domain"), tokens,
		}, SendWindows: map[string]sendwindow.Window{"call": hours}},
		{Limits: []limits.Limit{limit("account", throttle.FixedWindow), bucket, meter}},
	}
}

// template is a healthy queue with jobs in every state.
func (d *damage) template(t *testing.T, set limits.Queue) []saved {
	t.Helper()
	ctx := t.Context()
	if err := d.client.FlushAll(ctx).Err(); err != nil { // of the test's own server
		t.Fatal(err)
	}
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	fail(operate.Publish(ctx, d.client, limits.Set{Queues: map[string]limits.Queue{damagedQueue: set}, Tenants: map[string]limits.Tenant{"b": {Weight: 2, Guarantee: 0.3}}}))
	client := NewClient(d.client)
	var jobs []Job
	for i := range 18 {
		job := Job{Kind: "call", Queue: damagedQueue, Tenant: string(rune('a' + i%3)), Payload: i}
		switch i % 6 {
		case 1:
			job.Deadline = time.Now().Add(time.Hour)
		case 2:
			job.Priority = High
		case 3:
			job.Cost, job.Costs = 2, map[string]int64{"tokens": 3}
		case 4:
			job.At = time.Now().Add(time.Hour)
		case 5:
			job.Key, job.KeyUntil = fmt.Sprint("key", i), Ended
		}
		jobs = append(jobs, job)
	}
	for _, result := range client.EnqueueMany(ctx, jobs) {
		fail(result.Err)
	}
	rounds := &dispatcher{
		queue: damagedQueue, redis: d.client, worker: "w", kinds: ",call,", runs: &atomic.Int64{}, hand: func([]handed) {}, capacity: newCapacity(100), observer: NoObserver{}, logger: discardLogger(),
		limits: &effective.Calendars{Queue: damagedQueue, Redis: d.client}, clock: &redisClock{}, pauses: &pauses{}, starving: &starvation{}, sending: &atomic.Int64{}, live: newLiveRuns(), roles: newRoles(d.client, "w"), replans: newReplans(),
	}
	_, err := rounds.round(ctx, 100)
	fail(err)
	foreign := asynq.NewClientFromRedisClient(d.client)
	for _, options := range [][]asynq.Option{{}, {asynq.Group("a group")}, {asynq.ProcessIn(time.Hour)}} {
		_, err := foreign.Enqueue(asynq.NewTask("call", []byte(`{}`)), append(options, asynq.Queue(damagedQueue))...)
		fail(err)
	}
	// Some are held by workers, some wait for a retry, some have ended.
	active, lease := asynqwire.Key(damagedQueue, "active"), asynqwire.Key(damagedQueue, "lease")
	for i := range 5 {
		id, err := d.client.RPop(ctx, active).Result()
		fail(err)
		task := asynqwire.Key(damagedQueue, "t:"+id)
		switch i {
		case 3:
			fail(d.client.HSet(ctx, task, "state", "retry", "hg_slot", "0 0 2251799813685248").Err())
			fail(d.client.ZAdd(ctx, asynqwire.Key(damagedQueue, "retry"), zOf(id, 1)).Err())
			fail(d.client.ZRem(ctx, lease, id).Err())
		case 4:
			fail(d.client.HSet(ctx, task, "state", "archived").Err())
			fail(d.client.ZAdd(ctx, asynqwire.Key(damagedQueue, "archived"), zOf(id, float64(time.Now().Unix()))).Err())
			fail(d.client.ZRem(ctx, lease, id).Err())
		default:
			fail(d.client.HSet(ctx, task, "hg_owner", "worker:"+strconv.Itoa(i), "hg_first", "1 worker:"+strconv.Itoa(i)).Err())
			fail(d.client.LPush(ctx, active, id).Err())
		}
	}
	for i := range 3 { // the retention of one of them is over
		id := fmt.Sprint("kept", i)
		_, err := foreign.Enqueue(asynq.NewTask("call", []byte(`{}`)), asynq.Queue(damagedQueue), asynq.TaskID(id))
		fail(err)
		fail(d.client.LRem(ctx, asynqwire.Key(damagedQueue, "pending"), 1, id).Err())
		fail(d.client.HSet(ctx, asynqwire.Key(damagedQueue, "t:"+id), "state", "completed").Err())
		fail(d.client.ZAdd(ctx, asynqwire.Key(damagedQueue, "completed"), zOf(id, []float64{1, 9e9, 9e9}[i])).Err())
	}
	for _, id := range d.client.ZRange(ctx, asynqwire.Key(damagedQueue, "g:a;kind=call"), 0, -1).Val() {
		fail(d.client.HSet(ctx, asynqwire.Key(damagedQueue, "t:"+id), "hg_lost", "worker:9=1", "hg_crashes", 1).Err())
	}
	fail(NewClient(d.client).SetPeriodic(ctx, Periodic{ID: "hourly", Spec: "@hourly", Zone: "UTC", Job: Job{Kind: "call", Queue: damagedQueue, Tenant: "a"}}))
	fired := time.Now().Add(-time.Hour).Unix()
	fail(d.client.HSet(ctx, periodicFiredKey, "hourly", fired, "", fired).Err())
	fail(d.client.ZAdd(ctx, store.Key(damagedQueue, "periodic"), zOf("hourly", float64(fired))).Err())
	fail(d.client.Set(ctx, store.Key(damagedQueue, "watcher"), "worker0", 0).Err())
	fail(d.client.Set(ctx, store.Key(damagedQueue, "lead:,call,"), "worker0", 0).Err())
	// After a failure of a tenant, its next job is the probe.
	fail(d.client.HSet(ctx, store.Key(damagedQueue, "pauses"), "a:call;b", "1 tried 30000000 1 - 503", "c", "1 provider 429").Err())
	var all []saved
	names, err := d.client.Keys(ctx, "*").Result()
	fail(err)
	for _, name := range names {
		dump, err := d.client.Dump(ctx, name).Result()
		fail(err)
		all = append(all, saved{name, dump})
	}
	return all
}

// damagedTexts are the values of damaged fields. All are invalid, but some look valid.
var damagedTexts = []string{
	"", " ", "x", "-1", "0", "nan", "inf", "1e400", "99999999999999999999999", "9007199254740993", "1 2", "1 2 3 4", "{}", "[]", `{"limits":3}`,
	"{\"", "\x00", "\xff\xfe", "f 1 2 3", "r 1 2 3 4 5 6 7", "a;b=c;", "done", strings.Repeat("9", 300), "null", "@1 !", "1 !9 x",
	"1 tried 30000000 1 - 503", "1 tried x 1 - 503", "9000000000000000 provider 429",
}

// wound damages a state in one to three places, and returns whether a key of the whole queue is among them.
func (d *damage) wound(ctx context.Context, pick *rand.Rand, names []string) (whole bool) {
	pipe := d.client.Pipeline()
	for range 1 + pick.IntN(3) {
		name := names[pick.IntN(len(names))]
		whole = whole || !ofPart.MatchString(name)
		text := damagedTexts[pick.IntN(len(damagedTexts))]
		switch pick.IntN(10) {
		case 0, 1, 2: // another type
			pipe.Del(ctx, name)
			switch pick.IntN(5) {
			case 0:
				pipe.Set(ctx, name, text, 0)
			case 1:
				pipe.RPush(ctx, name, text)
			case 2:
				pipe.SAdd(ctx, name, text)
			case 3:
				pipe.HSet(ctx, name, text, text)
			default:
				pipe.ZAdd(ctx, name, redis.Z{Member: text, Score: float64(pick.IntN(3)) * 1e15})
			}
		case 3: // gone
			pipe.Del(ctx, name)
		default: // a field with another text, or without one
			pipe.Eval(ctx, woundLua, []string{name}, text, pick.IntN(1<<20), pick.IntN(4))
		}
	}
	if pick.IntN(8) == 0 { // a bucket from another algorithm of its limit
		pipe.Set(ctx, store.Key(damagedQueue, "b:account"), damagedTexts[pick.IntN(len(damagedTexts))], 0)
	}
	if pick.IntN(8) == 0 {
		pipe.Set(ctx, store.Key(damagedQueue, "permits:running:a"), "f 1 2 3 4 5", 0)
	}
	_, _ = pipe.Exec(ctx)
	return whole
}

// ofPart matches the keys of single jobs, lanes and limits.
var ofPart = regexp.MustCompile(`^asynq:{[^}]*}:[tg]:|^headgate:{[^}]*}:(b|permits|blocked|metered|guaranteed|unserved|endpoints|unique):`)

const woundLua = `
local is = redis.call('TYPE', KEYS[1]).ok
if is == 'hash' then
  local fields = redis.call('HKEYS', KEYS[1])
  local field = fields[ARGV[2] % #fields + 1]
  if field == 'msg' then return end
  if ARGV[3] == '0' then redis.call('HDEL', KEYS[1], field) else redis.call('HSET', KEYS[1], field, ARGV[1]) end
elseif is == 'zset' then
  local ids = redis.call('ZRANGE', KEYS[1], 0, -1)
  redis.call('ZADD', KEYS[1], ({'-1', '0', '9e15', '1.5e300'})[ARGV[3] + 1], ids[ARGV[2] % #ids + 1])
elseif is == 'string' then
  redis.call('SET', KEYS[1], ARGV[1])
elseif is == 'set' then
  redis.call('SADD', KEYS[1], ARGV[1])
elseif is == 'list' then
  redis.call('RPUSH', KEYS[1], ARGV[1])
end`

// one makes a state of the template and runs one script over it.
func (d *damage) one(t *testing.T, seed uint64) {
	t.Helper()
	ctx, pick := t.Context(), rand.New(rand.NewPCG(seed, 1))
	template := d.templates[pick.IntN(len(d.templates))]
	pipe := d.client.Pipeline()
	pipe.FlushAll(ctx) // of the test's own server
	var names []string // of keys that may be damaged
	for _, key := range template.keys {
		pipe.Restore(ctx, key.name, 0, key.dump) // no key expires during the test
		if !d.parts || ofPart.MatchString(key.name) {
			names = append(names, key.name)
		}
		if lane, ok := strings.CutPrefix(key.name, asynqwire.Key(damagedQueue, "g:")); ok && d.parts {
			pipe.ZAdd(ctx, store.Key(damagedQueue, "waiting"), zOf(lane, 1)) // so that dispatch looks at it
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	whole := false
	if seed >= uint64(len(d.scripts)) { // each script runs on a healthy state first
		whole = d.wound(ctx, pick, names)
	}
	script := d.scripts[seed%uint64(len(d.scripts))]
	before := d.account(t)
	before.whole = whole
	began := time.Now() // no bucket has fewer permits now than when the script runs
	err := script.run(ctx, pick, before)
	after := d.account(t)
	d.ran[script.name]++
	if err != nil {
		d.failed[script.name]++
		if before.Digest != after.Digest {
			t.Errorf("%s, state %d: failed half-way: %v", script.name, seed, err)
		}
	}
	for id, places := range before.Places {
		state, known := before.Fields[id]["state"]
		if !known || slices.Equal(places, []string{"lease"}) {
			continue // it is not a job: it has no message
		}
		forgotten := before.gone[id] && after.Fields[id] == nil || strings.HasPrefix(script.name, "verbs delete") && state == "archived" || script.name == "janitor" && state == "completed"
		if len(after.Places[id]) == 0 && !forgotten {
			t.Errorf("%s, state %d: job %s was in %v and is nowhere now (%v)\n%v", script.name, seed, id, places, err, before.Fields[id])
		}
	}
	for id, places := range after.Places {
		if n := queuesOf(places); n > max(1, queuesOf(before.Places[id])) {
			t.Errorf("%s, state %d: job %s is in %v, and was in %v", script.name, seed, id, places, before.Places[id])
		}
	}
	if err != nil && script.again && !effective.Stale(err) {
		t.Errorf("%s, state %d: it would answer so again and again: %v", script.name, seed, err)
	}
	// If the limits themselves are damaged, it is not known what they allow.
	if before.Limits == template.text {
		d.accountBuckets(t, seed, script.name, template.limits, before, after, began)
	}
}

// queuesOf counts the places from which a job can be called.
func queuesOf(places []string) (n int) {
	for _, place := range places {
		if place != "lease" {
			n++
		}
	}
	return n
}

// TestDamagedBase: a damaged job does not keep dispatch from handing over other jobs.
func TestDamagedBase(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	client := r.server.Client()
	damaged, good := r.add(t, nil), r.add(t, nil)
	client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+damaged), "hg_base", "x")
	if ids := r.release(t, r.dispatcher(), 10); !slices.Equal(ids, []string{good}) {
		t.Errorf("%v were handed over; want %s alone", ids, good)
	}
}

// TestDamagedLaneHoldsNoOther: a lane that cannot be read, or put where it is to wait, does not keep dispatch from handing
// over the jobs of other lanes. It is looked at again.
func TestDamagedLaneHoldsNoOther(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit  limits.Limit
		first  func(*Job) // a job of tenant a that goes before
		job    func(*Job) // the one that waits in the damaged lane
		damage func(ctx context.Context, client redis.UniversalClient, queue, lane, id string)
	}{
		"the lane has another type": {damage: func(ctx context.Context, client redis.UniversalClient, queue, lane, _ string) {
			client.Del(ctx, asynqwire.Key(queue, "g:"+lane))
			client.Set(ctx, asynqwire.Key(queue, "g:"+lane), "x", 0)
		}},
		"a position below 0": {damage: func(ctx context.Context, client redis.UniversalClient, queue, lane, id string) {
			client.ZAdd(ctx, asynqwire.Key(queue, "g:"+lane), zOf(id, -1))
		}},
		"a position above all": {damage: func(ctx context.Context, client redis.UniversalClient, queue, lane, id string) {
			client.ZAdd(ctx, asynqwire.Key(queue, "g:"+lane), zOf(id, 1e16))
		}},
		"the lanes without a permit": {limit: inFlight(1, "tenant"), first: func(*Job) {}, damage: func(ctx context.Context, client redis.UniversalClient, queue, _, _ string) {
			client.Set(ctx, store.Key(queue, "blocked:x:a"), "x", 0)
		}},
		"the lanes without tokens": {
			limit: tokens(100, "tenant"),
			first: func(job *Job) { job.Costs = map[string]int64{"tokens": 100} },
			job:   func(job *Job) { job.Costs = map[string]int64{"tokens": 1} },
			damage: func(ctx context.Context, client redis.UniversalClient, queue, _, _ string) {
				client.Set(ctx, store.Key(queue, "metered:tokens:a"), "x", 0)
			},
		},
		"the lanes of a kind that nobody handles": {
			job: func(job *Job) { job.Kind = "other" },
			damage: func(ctx context.Context, client redis.UniversalClient, queue, _, _ string) {
				client.Set(ctx, store.Key(queue, "unserved:other"), "x", 0)
			},
		},
		"the lanes that were put aside": {damage: func(ctx context.Context, client redis.UniversalClient, queue, lane, _ string) {
			client.ZRem(ctx, store.Key(queue, "waiting"), lane)
			client.SAdd(ctx, store.Key(queue, "unserved"), "call")
			client.Set(ctx, store.Key(queue, "unserved:call"), "x", 0)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := limitsOf()
			if test.limit.Name != "" {
				set = limitsOf(test.limit)
			}
			r := startRig(t, -1, set, nil)
			client, d := r.server.Client(), r.dispatcher()
			d.kinds = ",call,"
			if test.first != nil {
				r.add(t, test.first)
				r.release(t, d, 1)
			}
			held := r.add(t, test.job)
			lane := r.field(t, held, "group")
			test.damage(t.Context(), client, r.queue, lane, held)
			other := r.add(t, func(job *Job) { job.Tenant = "b" })
			if _, err := d.round(t.Context(), 10); err != nil {
				t.Fatal(err)
			}
			if state := r.field(t, other, "state"); state != "active" {
				t.Errorf("the job of the other tenant is %s", state)
			}
			if state := r.field(t, held, "state"); state != "aggregating" {
				t.Errorf("the job of the damaged lane is %s", state)
			}
			if faults, err := inspect.Faults(t.Context(), client, r.queue); err != nil || len(faults) != 1 || !strings.Contains(faults[0].What, "unserved") && !slices.Contains([]string{"lane " + lane, "job " + held}, faults[0].What) {
				t.Errorf("faults %+v, %v; want one of the lane or its job", faults, err)
			}
			if err := client.ZScore(t.Context(), store.Key(r.queue, "waiting"), lane).Err(); err != nil && name != "the lanes that were put aside" {
				t.Errorf("the damaged lane does not wait for another look: %v", err)
			}
		})
	}
}
