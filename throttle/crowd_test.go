package throttle

import (
	"cmp"
	"context"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/internal/test/redistest"
)

const (
	crowdProcesses = 4
	crowdCallers   = 64 // of each bucket, in each process
	crowdFor       = 10 * time.Second
	crowdHold      = 4 * time.Millisecond // longest call under a concurrency limit

	// crowdRest is how much longer than RetryAfter a refused caller stays away, at
	// most: 256 callers that come back at one moment would be load of no use.
	crowdRest = 300 * time.Millisecond
)

// crowd is one bucket, and what 256 callers in 4 processes do to it. Whoever is
// admitted asks again at once, and only a refusal sends a caller away: so a
// refusal shows that at that moment everything was asked for, whatever the
// machine can carry.
type crowd struct {
	limit  Limit
	within time.Duration // 0: the callers Take, else they Reserve so far ahead
	waits  bool          // every second caller waits in a queue

	// full is how long the bucket keeps what nobody takes, or the queue lasts that
	// nobody joins: a machine that stands still for less than a second loses nothing.
	// 0: a permit that is taken late delays those after it, or is lost with its
	// window, so every moment in which the machine keeps the callers away is lost.
	full time.Duration
}

// crowds are the groups of buckets that share the machine. The first group loses nothing by
// callers who come late. The second does, so it has the processors for itself.
var crowds = [][]crowd{
	{
		// The plain state and the front script, whole µs. The burst is a second.
		{limit: Limit{Name: "token bucket", Algorithm: TokenBucket, Rate: PerSecond(2000), Burst: 2000}, full: time.Second},
		// Intervals that are no whole µs, in the library.
		{limit: Limit{Name: "leaky bucket, policing", Algorithm: LeakyBucket, Rate: PerSecond(999), Capacity: 999}, full: time.Second},
		{limit: Limit{Name: "leaky bucket, shaping", Algorithm: LeakyBucket, Rate: PerSecond(750)}, within: time.Second, waits: true, full: time.Second},
		// A window's count is gone long before its end.
		{limit: Limit{Name: "fixed window", Algorithm: FixedWindow, Rate: PerSecond(1000)}, full: time.Second},
		{limit: Limit{Name: "sliding log, shaping", Algorithm: SlidingWindowLog, Rate: Rate{Count: 100, Period: 200 * time.Millisecond}}, within: time.Second, full: time.Second},
		{limit: Limit{Name: "sliding counter, shaping", Algorithm: SlidingWindowCounter, Rate: Rate{Count: 100, Period: 200 * time.Millisecond}}, within: time.Second, full: time.Second},
		{limit: Limit{Name: "concurrency", Algorithm: Concurrency, Concurrency: 50}},
	},
	{
		{limit: Limit{Name: "sliding log, policing", Algorithm: SlidingWindowLog, Rate: PerSecond(500)}},
		{limit: Limit{Name: "sliding counter, policing", Algorithm: SlidingWindowCounter, Rate: PerSecond(500)}},
	},
}

// prime is a first call that empties the bucket, or makes the queue full: from
// then on every refusal finds the limit in use.
func (c crowd) prime() int64 {
	if c.limit.Algorithm == LeakyBucket && c.within > 0 {
		return int64(c.within.Seconds() * float64(c.limit.Rate.Count))
	}
	return c.limit.Quota()
}

// crowdSeen is what the callers of one bucket saw, in µs.
type crowdSeen struct {
	Given   []crowdSpan // by Redis's clock: when it decided, and the slot
	Refused []crowdSpan // by the machine's: sent and answered, and Redis decided between
	Sure    []crowdSpan // concurrency: a permit was held all the while
	Perhaps []crowdSpan // the same, and at no other time
}

type crowdSpan struct{ From, To int64 }

func (s *crowdSeen) add(other crowdSeen) {
	s.Given = append(s.Given, other.Given...)
	s.Refused = append(s.Refused, other.Refused...)
	s.Sure = append(s.Sure, other.Sure...)
	s.Perhaps = append(s.Perhaps, other.Perhaps...)
}

// crowdJob is what TestTimedCrowd tells its processes.
type crowdJob struct {
	Addr, Prefix, Out string
	Group             int // of crowds
}

const crowdEnv = "HEADGATE_TEST_CROWD"

// crowdClient waits for as long as a busy machine takes.
func crowdClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: addr, DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, PoolTimeout: time.Minute,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// TestCrowdProcess is one of the processes of TestTimedCrowd, and nothing without it.
func TestCrowdProcess(t *testing.T) {
	text := os.Getenv(crowdEnv)
	if text == "" {
		return
	}
	var job crowdJob
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		t.Fatal(err)
	}
	client := crowdClient(job.Addr)
	defer client.Close()
	crowds := crowds[job.Group]
	limiters := make([]*Limiter, len(crowds))
	for i, c := range crowds {
		var err error
		if limiters[i], err = New(client, job.Prefix, c.limit); err != nil {
			t.Fatal(err)
		}
	}
	client.RPush(t.Context(), "ready", os.Getpid())
	if err := client.BLPop(t.Context(), time.Minute, "go").Err(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var callers sync.WaitGroup
	seen := make([]crowdSeen, len(crowds))
	end := time.Now().Add(crowdFor)
	for i, c := range crowds {
		for n := range crowdCallers {
			callers.Go(func() {
				var own crowdSeen
				switch {
				case c.limit.Algorithm == Concurrency:
					own = c.hold(t, limiters[i], end)
				case c.waits && n%2 == 1:
					own = c.wait(t, limiters[i], end)
				default:
					own = c.ask(t, limiters[i], end)
				}
				mu.Lock()
				defer mu.Unlock()
				seen[i].add(own)
			})
		}
	}
	callers.Wait()
	out, err := os.Create(job.Out)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmp.Or(gob.NewEncoder(out).Encode(seen), out.Close()); err != nil {
		t.Fatal(err)
	}
}

// ask asks until it is refused after the end, so that nothing is left then.
func (c crowd) ask(t *testing.T, limiter *Limiter, end time.Time) (seen crowdSeen) {
	for {
		sent := time.Now()
		var d Decision
		var err error
		if c.within > 0 {
			d, err = decision(limiter.Reserve(t.Context(), 1, c.within, "hot"))
		} else {
			d, err = limiter.Take(t.Context(), 1, "hot")
		}
		if err != nil {
			t.Error(err)
			return seen
		}
		if d.Allowed {
			seen.Given = append(seen.Given, crowdSpan{d.At.Add(-d.Delay).UnixMicro(), d.At.UnixMicro()})
			continue
		}
		seen.Refused = append(seen.Refused, crowdSpan{sent.UnixMicro(), time.Now().UnixMicro() + 1})
		if sent.After(end) {
			return seen
		}
		time.Sleep(d.RetryAfter + rand.N(crowdRest))
	}
}

func (c crowd) wait(t *testing.T, limiter *Limiter, end time.Time) (seen crowdSeen) {
	for time.Now().Before(end) {
		r, err := limiter.Wait(t.Context(), 1, "hot")
		if err != nil {
			t.Error(err)
			return seen
		}
		if early := time.Until(r.At); early > time.Millisecond { // which a clock may be set by
			t.Errorf("Wait returned %v before its slot", early)
		}
		seen.Given = append(seen.Given, crowdSpan{r.At.Add(-r.Delay).UnixMicro(), r.At.UnixMicro()})
	}
	return seen
}

func (c crowd) hold(t *testing.T, limiter *Limiter, end time.Time) (seen crowdSeen) {
	for time.Now().Before(end) {
		sent := time.Now()
		r, err := limiter.Reserve(t.Context(), 1, 0, "hot")
		if err != nil {
			t.Error(err)
			return seen
		}
		answered := time.Now()
		if !r.Allowed {
			seen.Refused = append(seen.Refused, crowdSpan{sent.UnixMicro(), answered.UnixMicro() + 1})
			time.Sleep(rand.N(crowdRest)) // RetryAfter is when a lease ends, at the latest
			continue
		}
		time.Sleep(rand.N(crowdHold)) // the call
		over := time.Now()
		if err := r.Release(t.Context()); err != nil {
			t.Error(err)
			return seen
		}
		seen.Sure = append(seen.Sure, crowdSpan{answered.UnixMicro() + 1, over.UnixMicro()})
		seen.Perhaps = append(seen.Perhaps, crowdSpan{sent.UnixMicro(), time.Now().UnixMicro() + 1})
	}
	return seen
}

// TestTimedCrowd holds each algorithm against 64 callers in each of 4 processes, for
// ten seconds, in three ways:
//
//   - No window was ever over the law, by the moments at which Redis decided.
//   - No call was refused while the law had a permit for it: what nobody took, was
//     there for whoever asked. This holds however slow the machine is.
//   - 0.999 of what the law allows from the first permit to the last was given. Where
//     it was less, the callers asked for less, or the limiter is wrong; a run in which
//     the machine kept them from asking is repeated, twice at most.
//
// A limit of concurrency allows nothing per time: a permit is free from its release until
// the next caller asks. Of it the second says all, with no tolerance.
func TestTimedCrowd(t *testing.T) {
	for group := range crowds {
		crowdGroup(t, group)
	}
}

func crowdGroup(t *testing.T, group int) {
	const tries = 3
	for try := 1; ; try++ {
		primed, seen := crowdRun(t, group)
		var short []string
		for i, c := range crowds[group] {
			t.Run(c.limit.Name, func(t *testing.T) {
				if c.limit.Algorithm == Concurrency {
					c.checkHeld(t, seen[i])
				} else if why := c.check(t, primed[i], seen[i]); why != "" {
					short = append(short, c.limit.Name+": "+why)
				}
			})
		}
		switch {
		case len(short) == 0 || t.Failed():
			return
		case try == tries:
			t.Fatalf("machine too busy in each of %d runs; in the last, %s", tries, strings.Join(short, "; "))
		}
		t.Logf("machine too busy, so once more: %s", strings.Join(short, "; "))
	}
}

// crowdRun is one run of a group: the first call to each bucket, and what callers saw.
func crowdRun(t *testing.T, group int) (primed []crowdSpan, seen []crowdSeen) {
	crowds := crowds[group]
	server := redistest.Start(t)
	client := crowdClient(server.Addr())
	defer client.Close()
	dir := t.TempDir()
	var processes []*exec.Cmd
	for i := range crowdProcesses {
		job, err := json.Marshal(crowdJob{Addr: server.Addr(), Prefix: "crowd", Out: filepath.Join(dir, fmt.Sprint(i)), Group: group})
		if err != nil {
			t.Fatal(err)
		}
		process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrowdProcess$")
		process.Env = append(os.Environ(), crowdEnv+"="+string(job))
		process.Stdout, process.Stderr = t.Output(), t.Output()
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		processes = append(processes, process)
	}
	for range processes {
		if err := client.BLPop(t.Context(), time.Minute, "ready").Err(); err != nil {
			t.Fatal(err)
		}
	}
	primed, seen = make([]crowdSpan, len(crowds)), make([]crowdSeen, len(crowds))
	for i, c := range crowds {
		if c.limit.Algorithm == Concurrency {
			continue
		}
		limiter, err := New(client, "crowd", c.limit)
		if err != nil {
			t.Fatal(err)
		}
		form := limiter.Take
		if c.within > 0 {
			form = func(ctx context.Context, n int64, keys ...string) (Decision, error) {
				return decision(limiter.Reserve(ctx, n, 0, keys...))
			}
		}
		d, err := form(t.Context(), c.prime(), "hot")
		if err != nil || !d.Allowed {
			t.Fatalf("%s: %+v, %v", c.limit.Name, d, err)
		}
		primed[i] = crowdSpan{d.At.UnixMicro(), d.At.UnixMicro()}
		if c.within > 0 {
			seen[i] = c.ask(t, limiter, time.Time{}) // the whole queue: its first slots are over before the processes begin
		}
	}
	client.RPush(t.Context(), "go", 1, 2, 3, 4)
	for i, process := range processes {
		if err := process.Wait(); err != nil {
			t.Fatalf("process %d: %v", i+1, err)
		}
		out, err := os.Open(filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		var own []crowdSeen
		if err := cmp.Or(gob.NewDecoder(out).Decode(&own), out.Close()); err != nil {
			t.Fatal(err)
		}
		for i := range own {
			seen[i].add(own[i])
		}
	}
	return primed, seen
}

// check fails the test for what the limiter did wrong, and returns what the callers may
// have done.
func (c crowd) check(t *testing.T, primed crowdSpan, seen crowdSeen) (short string) {
	byTime := func(a, b crowdSpan) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) }
	slices.SortFunc(seen.Given, byTime)
	slices.SortFunc(seen.Refused, byTime)
	if len(seen.Given) == 0 || len(seen.Refused) == 0 {
		t.Fatalf("%d given and %d refused", len(seen.Given), len(seen.Refused))
	}
	law, within := c.law(), c.within.Microseconds()
	law.take(primed.To, c.prime())
	// open are the times at which a call would have been admitted: the end of each
	// is the call that was.
	var open []crowdSpan
	before := primed
	for i := range len(seen.Given) + 1 {
		next := law.next(before.To)
		if i == len(seen.Given) {
			open = append(open, crowdSpan{max(before.From, next-within), crowdNever})
			break
		}
		given := seen.Given[i]
		if given.To < next {
			t.Fatalf("over the law: a slot at %d µs after the first call, %d µs before the law has one", given.To-primed.To, next-given.To)
		}
		if from := max(before.From, next-within); from < given.From {
			open = append(open, crowdSpan{from, given.From})
		}
		law.take(given.To, 1)
		before = given
	}
	if refused, while, wrong := refusedWhile(seen.Refused, open); wrong {
		t.Fatalf("refused between %d and %d µs after the first call, although there was a permit from %d µs on",
			refused.From-primed.To, refused.To-primed.To, while.From-primed.To)
	}
	// What a caller who is always there gets from the first slot to the last.
	last := slices.MaxFunc(seen.Given, func(a, b crowdSpan) int { return cmp.Compare(a.To, b.To) }).To
	given, allowed := c.prime()+int64(len(seen.Given)), c.prime()
	greedy := c.law()
	greedy.take(primed.To, allowed)
	for at := greedy.next(primed.To); at <= last; at = greedy.next(at) {
		greedy.take(at, 1)
		allowed++
	}
	share := float64(given) / float64(allowed)
	t.Logf("%d permits given, %d refusals; %.5f of what the law allows in %v", given, len(seen.Refused), share, time.Duration(last-primed.To)*time.Microsecond)
	const least = 0.999
	if share >= least {
		return ""
	}
	short = fmt.Sprintf("%.5f of what the law allows was given, want %v", share, least)
	// From one refusal, after which nothing was left, to the next nothing is lost,
	// if they are near enough to each other.
	quiet := primed.From
	for _, refused := range seen.Refused {
		if refused.From > last {
			break
		}
		apart := refused.To - quiet
		if c.limit.Algorithm == FixedWindow { // the window after that of the refusal before
			apart -= c.limit.Rate.Period.Microseconds() - quiet%c.limit.Rate.Period.Microseconds()
		}
		if apart > c.full.Microseconds() {
			return fmt.Sprintf("%s, and %v passed in which not enough was asked for", short, time.Duration(refused.To-quiet)*time.Microsecond)
		}
		quiet = refused.From
	}
	t.Errorf("%s, and it was asked for all along", short)
	return ""
}

// crowdNever is when what did not end ends.
const crowdNever = int64(1) << 60

// refusedWhile finds a call that was refused within one of these times, from its
// sending to its answer. They are in order and apart.
func refusedWhile(calls, times []crowdSpan) (call, while crowdSpan, found bool) {
	for _, call := range calls {
		i, _ := slices.BinarySearchFunc(times, call.From, func(s crowdSpan, at int64) int { return cmp.Compare(s.To, at) })
		if i < len(times) && times[i].From <= call.From && call.To < times[i].To {
			return call, times[i], true
		}
	}
	return crowdSpan{}, crowdSpan{}, false
}

// checkHeld looks at both ends: certainly held, and at most.
func (c crowd) checkHeld(t *testing.T, seen crowdSeen) {
	// A permit that ends at the µs at which another begins is not held with it.
	count := func(spans []crowdSpan, each func(at, held int64)) {
		type edge struct{ at, change int64 }
		var edges []edge
		for _, s := range spans {
			if s.From < s.To {
				edges = append(edges, edge{s.From, 1}, edge{s.To, -1})
			}
		}
		slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.change, b.change)) })
		held := int64(0)
		for _, e := range edges {
			held += e.change
			each(e.at, held)
		}
	}
	most := int64(0)
	count(seen.Sure, func(_, held int64) { most = max(most, held) })
	if most > c.limit.Concurrency {
		t.Errorf("%d calls under way at once, of %d", most, c.limit.Concurrency)
	}
	// free are the times with a permit left, even if each was taken as soon and came
	// back as late as can be: nobody may be refused then. So of the time that was
	// asked for all is used.
	var free []crowdSpan
	since, full := int64(0), false
	count(seen.Perhaps, func(at, held int64) {
		switch now := held >= c.limit.Concurrency; {
		case now && !full:
			free = append(free, crowdSpan{since, at})
			full = true
		case !now && full:
			since, full = at, false
		}
	})
	if !full {
		free = append(free, crowdSpan{since, crowdNever})
	}
	if refused, _, wrong := refusedWhile(seen.Refused, free); wrong {
		t.Errorf("refused within %d µs in which a permit was free", refused.To-refused.From)
	}
	t.Logf("%d calls, %d refusals, at most %d at once", len(seen.Sure), len(seen.Refused), most)
	if len(seen.Sure) == 0 {
		t.Error("no call was admitted")
	}
}

// crowdLaw is what an algorithm promises, in whole numbers of µs since the epoch.
type crowdLaw interface {
	next(t int64) int64 // the first moment from t on at which one permit more is within the law
	take(t, n int64)
}

func (c crowd) law() crowdLaw {
	count, period := c.limit.Rate.Count, c.limit.Rate.Period.Microseconds()
	switch c.limit.Algorithm {
	case TokenBucket:
		return &bucketLaw{count: count, period: period, size: c.limit.Burst}
	case LeakyBucket:
		if c.within > 0 {
			return &bucketLaw{count: count, period: period, size: 1, rounded: true}
		}
		return &bucketLaw{count: count, period: period, size: c.limit.Capacity}
	case FixedWindow:
		return &windowLaw{count: count, period: period}
	case SlidingWindowLog:
		return &logLaw{count: count, period: period}
	default:
		return &counterLaw{count: count, period: period}
	}
}

// bucketLaw is count(i..j) <= size + rate × (t_j - t_i) for all i and j: the sum
// over every window is within it exactly if the worst one that ends now is, and
// what that one lacks drains at the rate. Time is counted in µs × count, so that
// a permit is `period`.
type bucketLaw struct {
	count, period, size int64
	clear               int64 // when all has drained
	rounded             bool  // slots are exact ones, rounded up to whole µs
}

func (l *bucketLaw) next(t int64) int64 {
	return max(t, (l.clear-(l.size-1)*l.period+l.count-1)/l.count)
}

func (l *bucketLaw) take(t, n int64) {
	if at := t * l.count; at > l.clear && !(l.rounded && at-l.clear < l.count) {
		l.clear = at
	}
	l.clear += n * l.period
}

// windowLaw is at most count in each window, aligned to the epoch.
type windowLaw struct{ count, period, start, used int64 }

func (l *windowLaw) next(t int64) int64 {
	if t-t%l.period == l.start && l.used >= l.count {
		return l.start + l.period
	}
	return t
}

func (l *windowLaw) take(t, n int64) {
	if start := t - t%l.period; start != l.start {
		l.start, l.used = start, 0
	}
	l.used += n
}

// logLaw is at most count in every (t - period, t].
type logLaw struct {
	count, period int64
	taken         []int64
}

func (l *logLaw) next(t int64) int64 {
	if i := int64(len(l.taken)) - l.count; i >= 0 {
		return max(t, l.taken[i]+l.period)
	}
	return t
}

func (l *logLaw) take(t, n int64) { l.taken = append(l.taken, slices.Repeat([]int64{t}, int(n))...) }

// counterLaw is previous × (1 - elapsed), rounded down, + used <= count.
type counterLaw struct{ count, period, start, previous, used int64 }

func (l *counterLaw) move(t int64) {
	switch start := t - t%l.period; {
	case start == l.start+l.period:
		l.start, l.previous, l.used = start, l.used, 0
	case start > l.start:
		l.start, l.previous, l.used = start, 0, 0
	}
}

func (l *counterLaw) next(t int64) int64 {
	for at := *l; ; {
		at.move(t)
		if room := at.count - at.used - 1; room >= 0 && at.previous*(at.period-(t-at.start)) < (room+1)*at.period {
			return t
		} else if room < 0 || at.previous == 0 {
			t = at.start + at.period
		} else {
			t = at.start + at.period - ((room+1)*at.period-1)/at.previous
		}
	}
}

func (l *counterLaw) take(t, n int64) {
	l.move(t)
	l.used += n
}
