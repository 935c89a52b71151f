package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// faultsOf returns what the scripts reported for a queue, without times.
func faultsOf(t *testing.T, r *rig) string {
	t.Helper()
	faults, err := inspect.Faults(t.Context(), r.server.Client(), r.queue)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range faults {
		all = append(all, f.What+": "+f.Reason)
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// TestDeadlineOfAJobThatIsHeld: a job whose deadline passes while a worker has it is looked at again later, and a
// deadline without a job goes.
func TestDeadlineOfAJobThatIsHeld(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	client, deadlines := r.server.Client(), store.Key(r.queue, "deadlines")
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	client.ZAdd(t.Context(), deadlines, redis.Z{Score: 1, Member: id}, redis.Z{Score: 1, Member: "ghost"})
	_, handed := r.handing()
	if got := handed(t, 10); len(got) > 0 {
		t.Errorf("%q were handed over", got)
	}
	left := client.ZRangeWithScores(t.Context(), deadlines, 0, -1).Val()
	now := time.Now().UnixMicro()
	if len(left) != 1 || left[0].Member != id || left[0].Score < float64(now+1e6) || left[0].Score > float64(now+6e6) {
		t.Errorf("at %d the deadlines are %v; want that of %s in some seconds", now, left, id)
	}
}

// TestTurnEndsWhereTheNextOneIsDue: a lane gets the slots of a shared limit until another lane is due, also slots that
// are far ahead.
func TestTurnEndsWhereTheNextOneIsDue(t *testing.T) {
	t.Parallel()
	shared := limits.Limit{Name: "account", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(10)}
	r := startRig(t, -1, limitsOf(shared), nil)
	r.enqueue(t, "a", 5)
	r.enqueue(t, "b", 1)
	now, err := store.Time(t.Context(), r.server.Client(), store.Key(r.queue, "waiting"))
	if err != nil {
		t.Fatal(err)
	}
	due := now.Add(250 * time.Millisecond)
	r.server.Client().ZAdd(t.Context(), store.Key(r.queue, "waiting"), redis.Z{Score: float64(due.UnixMicro()), Member: r.lane("b")})
	reply, err := store.DispatchScript.Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), r.queue, 100, 100, time.Minute.Microseconds(), pickup.Microseconds(), "", "", time.Minute.Microseconds(), "w", 1, 0, maxAlone, leadLasts.Milliseconds(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, job := range reply.([]any)[10].([]any) {
		order = append(order, r.field(t, fmt.Sprint(job.([]any)[0]), "group"))
	}
	want := []string{r.lane("a"), r.lane("a"), r.lane("a"), r.lane("b"), r.lane("a"), r.lane("a")}
	if !slices.Equal(order, want) {
		t.Errorf("slots in the order %q, want %q", order, want)
	}
}

// TestDamagedCountsRefuseNothing: a queue whose counts cannot be read accepts jobs in spite of its caps, and says so.
func TestDamagedCountsRefuseNothing(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limits.Set{Queues: map[string]limits.Queue{"": {MaxQueue: 1}}}, nil)
	r.add(t, nil)
	r.server.Client().HSet(t.Context(), store.TenantsKey(r.queue), "*", "no counts")
	r.add(t, nil)
	if text := faultsOf(t, r); !strings.Contains(text, `tenant *: "no counts" are no counts`) {
		t.Errorf("faults: %s", text)
	}
}

// TestPausedQueueLeasesNothing: a queue that asynq's tools paused asks for no permits of a shared limit; and an answer to
// a bucket that is not there any more is none.
func TestPausedQueueLeasesNothing(t *testing.T) {
	t.Parallel()
	s := newSpending(t, limits.Limit{Rate: day}, nil)
	const home = "payment"
	s.add(home, 2, 100)
	// The lane is ready once it was dispatched to, as only the budget holds it.
	s.client.ZRem(t.Context(), store.Key(home, "waiting"), "acme;kind="+home)
	s.client.ZAdd(t.Context(), store.Key(home, "ready"), redis.Z{Score: 0, Member: "acme;kind=" + home})
	ask := func() (want int64, id string) {
		t.Helper()
		reply, err := store.AskScript.Run(t.Context(), s.client, store.ScriptKeys(home), home, 0, time.Second.Microseconds(), "")
		if err != nil {
			t.Fatal(err)
		}
		asks, _, err := readAsks(reply, home)
		if err != nil || len(asks) != 1 {
			t.Fatalf("%+v, %v", asks, err)
		}
		return asks[0].Want, asks[0].id
	}
	want, id := ask()
	if want != 200 {
		t.Errorf("two jobs that take 100 ask for %d", want)
	}
	s.client.Set(t.Context(), asynqwire.Key(home, "paused"), "1", 0)
	if want, _ := ask(); want != 0 {
		t.Errorf("a paused queue asks for %d", want)
	}
	for holder, granted := range map[string]int64{"12345": 0, id: 1} {
		got, err := store.GrantScript.Run(t.Context(), s.client, store.ScriptKeys(home), home, "spend", holder, 1, 1_000_000, 0, "", 300, 0, store.Endless)
		if err != nil || got != granted {
			t.Errorf("an answer to bucket %s: %v, %v; want %d", holder, got, err, granted)
		}
	}
}

// TestDroppedPlansAreForgotten: what a script remembers of a plan is undone with it.
func TestDroppedPlansAreForgotten(t *testing.T) {
	t.Parallel()
	limit := rampedTo(throttle.FixedWindow, nil)
	r := startRig(t, -1, limitsOf(limit), nil)
	client := r.server.Client()
	client.SAdd(t.Context(), store.Key(r.queue, "some"), "lane")
	script := store.NewScript(`
local set, now = headgate .. 'some', clock()
attempt('what was planned', function()
  pick(set, 1)
  plan('SADD', headgate .. 'other', 'x')
  note_length('lane', 3)
  ramps().begin(lane_limits('a', now).own[1], now)
  error('it is damaged', 0)
end)
local entry = lane_limits('a', now).own[1]
entry.growing = nil
local grows = ramps().spec(entry, entry.published, now).b == 50 and not entry.growing
return {#pick(set, 1), left['lane'], grows and 1 or 0}`)
	reply, err := script.Run(t.Context(), client, store.ScriptKeys(r.queue), r.queue)
	if got := fmt.Sprint(reply, err); got != "[1 0 1] <nil>" {
		t.Errorf("picked again, the length of the lane, a ramp that did not begin: %s", got)
	}
	if n := client.Exists(t.Context(), store.Key(r.queue, "other"), store.Key(r.queue, "ramp:new-domains:a"), store.Key(r.queue, "some")).Val(); n != 0 {
		t.Errorf("%d keys of what was dropped, or not picked, are there", n)
	}
	if text := faultsOf(t, r); text != "what was planned: it is damaged" {
		t.Errorf("faults: %s", text)
	}
}

// TestNothingIsWrittenAsNil: a plan with a value that is missing is refused before anything is written, as is a slot that
// no job can have.
func TestNothingIsWrittenAsNil(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	script := store.NewScript(`
attempt('plan', function() plan('HSET', headgate .. 'x', 'a', nil, 'b') end)
attempt('plan, at its end', function() plan('HSET', headgate .. 'x', 'a', nil) end)
attempt('early slot', function() slot_write(-1, 0, 0) end)
attempt('late slot', function() slot_write(0, 1e16, 0) end)
attempt('place of a slot', function() slot_write(0, 0, 1e16) end)
attempt('place of a job', function() leaving_read('nowhere') end)
return redis.call('EXISTS', headgate .. 'x')`)
	if n, err := script.Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), r.queue); err != nil || n != int64(0) {
		t.Errorf("%v, %v", n, err)
	}
	want := "early slot: a slot is out of range\nlate slot: a slot is out of range\nplace of a job: \"nowhere\" is no place of a job\n" +
		"place of a slot: a slot is out of range\nplan, at its end: cannot write nil to " + store.Key(r.queue, "x") + "\nplan: cannot write nil to " + store.Key(r.queue, "x")
	if text := faultsOf(t, r); text != want {
		t.Errorf("faults:\n%s\nwant:\n%s", text, want)
	}
}

// TestSettledNowhere: a job whose worker names a place that there is not stays with it.
func TestSettledNowhere(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	if r.settles(t, settleQuestion{id: id, owner: "w:1", outcome: settleFree, to: "nowhere"}).mine {
		t.Error("it was settled")
	}
	if state := r.field(t, id, "state"); state != "active" {
		t.Errorf("it is %s", state)
	}
	if text := faultsOf(t, r); text != "job "+id+`: "nowhere" is no place for a job` {
		t.Errorf("faults: %s", text)
	}
}

// TestSlotOfADamagedJob: a job with a slot that cannot be read gets none, and says so.
func TestSlotOfADamagedJob(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	r.server.Client().HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "hg_slot", "tomorrow")
	if answer := r.slotOf(t, id); answer != "gone" {
		t.Errorf("the answer is %s", answer)
	}
	if text := faultsOf(t, r); text != "job "+id+`: "tomorrow" is no slot` {
		t.Errorf("faults: %s", text)
	}
}

// TestSweepOfDamagedLimits: a sweep of a queue whose limits cannot be read moves nothing and ends.
func TestSweepOfDamagedLimits(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	client := r.server.Client()
	r.add(t, nil)
	// A lane that asynq's tools made, whose name has its parts in another order than ours.
	odd := "a;kind=call;endpoint=x"
	client.ZAdd(t.Context(), asynqwire.Key(r.queue, "g:"+odd), redis.Z{Score: 1, Member: "y"})
	client.SAdd(t.Context(), asynqwire.Key(r.queue, "groups"), odd)
	sweep := func() string {
		t.Helper()
		reply, err := store.SweepScript.Run(t.Context(), client, store.ScriptKeys(r.queue), r.queue, "0", "", "", 1)
		return fmt.Sprint(reply, err)
	}
	if got := sweep(); !strings.HasPrefix(got, "[0 ") {
		t.Errorf("a sweep answers %s", got)
	}
	if kinds := client.SMembers(t.Context(), store.Key(r.queue, "kinds")).Val(); !slices.Equal(kinds, []string{"call"}) {
		t.Errorf("the kinds are %q", kinds)
	}
	client.HSet(t.Context(), store.Key(r.queue, "limits"), "*", "{")
	if got := sweep(); got != "[0 0] <nil>" {
		t.Errorf("with damaged limits a sweep answers %s", got)
	}
	if text := faultsOf(t, r); !strings.HasPrefix(text, "limits: ") {
		t.Errorf("faults: %s", text)
	}
}

// TestOthersPartitionStays: a partition is not removed by one who knows another layout of the queue.
func TestOthersPartitionStays(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limits.Set{Queues: map[string]limits.Queue{"": {Partitions: 2}}}, nil)
	client := r.server.Client()
	unregister := func(layout string) any {
		t.Helper()
		reply, err := store.UnregisterScript.Run(t.Context(), client, store.ScriptKeys(r.queue), r.queue, 1, layout)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	if got := unregister("another"); got != int64(-1) {
		t.Errorf("removed for another layout: %v", got)
	}
	l, err := store.ReadLayout(t.Context(), client, r.queue)
	if err != nil || l.N != 2 {
		t.Errorf("%+v, %v", l, err)
	}
	if got := unregister(l.Sum()); got != int64(0) || client.HExists(t.Context(), store.Key(r.queue, "limits"), "*").Val() {
		t.Errorf("not removed for its own: %v", got)
	}
}

// TestLevelNearTheRefusedOne: a level that is refused close to the one before it is lowered by a little.
func TestLevelNearTheRefusedOne(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	script := store.NewScript(`local level, ends, before = level_at({low = 512, high = 512}, tonumber(ARGV[2])) return {level, ends, before or 0}`)
	for _, test := range []struct {
		after time.Duration
		want  string
	}{{time.Second, "[512 60000000 0]"}, {3 * time.Second, "[512 60000000 480]"}} {
		reply, err := script.Run(context.Background(), r.server.Client(), store.ScriptKeys(r.queue), r.queue, test.after.Microseconds())
		if got := fmt.Sprint(reply); err != nil || got != test.want {
			t.Errorf("%v after a refusal: %s, %v; want %s", test.after, got, err, test.want)
		}
	}
}

// TestSlotOfAnotherLane: a job in a lane whose name does not have its receiver, as those of asynq's own client have, is
// under the limits of its receiver.
func TestSlotOfAnotherLane(t *testing.T) {
	t.Parallel()
	limit := limits.Limit{Name: "endpoint", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1), Per: []string{store.EndpointAttribute}}
	r := startRig(t, -1, limitsOf(limit), nil)
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	reply, err := store.SlotScript.Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), r.queue, time.Second.Microseconds(), inHand.Microseconds(), "",
		id, "w:1", "a", ";endpoint=h:1", "call", 1, "", time.Minute.Microseconds())
	if err != nil || reply.([]any)[0] != "go" {
		t.Fatal(reply, err)
	}
	if group := r.field(t, id, "group"); !strings.Contains(group, "endpoint=h:1") {
		t.Errorf("its lane is %q", group)
	}
	if keys := redistest.Keys(t, r.server.Client(), store.Key(r.queue, "b:endpoint:*")); len(keys) != 1 || !strings.Contains(keys[0], "h") {
		t.Errorf("it took of the buckets %q", keys)
	}
}

// TestReplacedJobIsNotThere: a tick replaces no job that is not where its state says, because asynq's tools took it.
func TestReplacedJobIsNotThere(t *testing.T) {
	t.Parallel()
	tm := newTimer(t)
	tm.set(Periodic{ID: "x", Spec: "* * * * * *", Zone: "UTC", Overlap: OverlapReplace})
	first := tm.now() - 5
	tm.tick("x", first)
	lane := asynqwire.Key("call", "g:a;kind=call")
	waiting := tm.client.ZRange(t.Context(), lane, 0, -1).Val()
	if len(waiting) != 1 {
		t.Fatal(waiting)
	}
	tm.client.ZRem(t.Context(), lane, waiting[0])
	tm.tick("x", first+1)
	if state := tm.client.HGet(t.Context(), asynqwire.Key("call", "t:"+waiting[0]), "state").Val(); state != "aggregating" {
		t.Errorf("it is %s", state)
	}
	if now := tm.client.ZRange(t.Context(), lane, 0, -1).Val(); len(now) != 1 || now[0] == waiting[0] {
		t.Errorf("in the lane: %q", now)
	}
}
