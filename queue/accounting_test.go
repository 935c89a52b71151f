package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/testlong"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// TestAccounting: whatever workers do with their slots, calls keep to the limits exactly.
// Redis runs the scripts, and the test models which calls may have left. Two workers ask
// for jobs in random order. They send each job at a random moment of its slot, or are too
// late and ask for another slot, or give the job back. Calls cost less than estimated,
// limits change, and Redis's clock is set.
func TestAccounting(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	const servers = 2 // for as many cores
	for first := range uint64(servers) {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t) // it forgets the scripts of each run
			for seed := first; seed < uint64(testlong.Of(12, 2000)); seed += servers {
				accounted(t, server, seed)
			}
		})
	}
}

func accounted(t *testing.T, server *redistest.Server, seed uint64) {
	m := newAccounting(t, server, seed)
	for range 60 {
		// Frequent and rare events.
		actions := []func(*testing.T){m.enqueue, m.round, m.round, m.round, m.send, m.send, m.late, m.pass, m.pass, m.giveBack}
		if m.Float64() < 0.1 {
			actions = []func(*testing.T){m.publish, m.step}
		}
		actions[m.IntN(len(actions))](t)
	}
	m.drain(t)
	m.law(t)
	m.client.Close()
	if t.Failed() {
		t.Fatalf("seed %d:\n%s", seed, strings.Join(m.story, "\n"))
	}
}

// TestLittleStepBackBeforeASlowerRate: if the clock is set back by less than a second, no
// more than that time is lost, even if the limit is then lowered.
func TestLittleStepBackBeforeASlowerRate(t *testing.T) {
	t.Parallel()
	const fast, slow = 300, 1 // a round takes less time than the slots that it gives
	for _, back := range []time.Duration{0, 900 * time.Millisecond} {
		r := startRig(t, -1, limitsOf(sharedBy(fast)), nil)
		clock := &redistest.Clock{}
		client := dialed(t, r.server, clock.Dial)
		r.enqueue(t, "a", 500)
		d := r.dispatcher()
		d.redis, d.limits, d.poll = client, &effective.Calendars{Queue: r.queue, Redis: client}, time.Hour
		round := func() time.Duration {
			wait, err := d.round(t.Context(), 1000)
			if err != nil {
				t.Fatal(err)
			}
			return wait
		}
		for round() < 10*time.Millisecond { // until slots are given that far ahead
		}
		clock.Step(-back)
		if err := operate.Publish(t.Context(), client, limits.Set{Queues: map[string]limits.Queue{r.queue: {Limits: []limits.Limit{sharedBy(slow)}}}}); err != nil {
			t.Fatal(err)
		}
		d.limits = &effective.Calendars{Queue: r.queue, Redis: client}
		round()
		clock.Step(time.Second) // jobs that wait by the old time are due
		// Permits given ahead keep their number under the slower rate, which is
		// never more than go in 450 ms.
		if wait, most := round(), 450*time.Millisecond*fast/slow; wait > most {
			t.Errorf("set back by %v, the next goes in %v; want at most %v", back, wait, most)
		}
	}
}

// TestGivenBackSlotIsOver: a job that was given back with a future slot loses the slot when
// the clock is then set back.
func TestGivenBackSlotIsOver(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{0, -time.Minute} {
		r := startRig(t, -1, limitsOf(perTenant(1000)), nil)
		clock := &redistest.Clock{}
		client := dialed(t, r.server, clock.Dial)
		id := r.add(t, nil)
		round := func() (jobs []handed) {
			d := r.dispatcher()
			d.redis, d.limits, d.hand = client, &effective.Calendars{Queue: r.queue, Redis: client}, func(got []handed) { jobs = got }
			if _, err := d.round(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			return jobs
		}
		round()
		// As if the slot were far enough ahead not to pass meanwhile.
		ahead := time.Now().Add(time.Minute).UnixMicro()
		client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "hg_slot", fmt.Sprintf("1 %d 77", ahead))
		r.giveBack(t, id)
		clock.Step(step)
		if err := effective.Replan(t.Context(), client, r.queue, ""); err != nil { // as by workers that see it
			t.Fatal(err)
		}
		jobs := round()
		if kept := len(jobs) == 1 && jobs[0].latestMicros == ahead; kept != (step == 0) {
			t.Errorf("the clock was set by %v: %+v; its slot ended at %d before", step, jobs, ahead)
		}
	}
}

// accounting is the state of the model. Times are µs of a true clock that is never set.
// Redis's clock is ahead of it.
type accounting struct {
	*rand.Rand
	clock  *redistest.Clock
	client redis.UniversalClient
	gate   *gate
	runs   *atomic.Int64
	ahead  int64 // of Redis's clock, µs
	limits []limitsInForce
	steps  []int64 // when the clock was set forward
	held   []heldJob
	sent   []sentCall
	given  map[string]heldJob // jobs that were given back, and are not held again, by id
	waits  int                // jobs that were enqueued, less those that were sent
	story  []string           // what happened, for the log of a failure
}

const modelQueue = "q"

// limitsInForce has the numbers of both limits from a time on.
type limitsInForce struct {
	since               int64
	rate, burst, shared int64 // tokens a second of a tenant and at once, and calls a second of all
}

type heldJob struct {
	id, owner, tenant string
	earliest, latest  int64
	told              int64 // the latest, by Redis's clock
	granted           int64
	tokens            int64
}

type sentCall struct {
	at, granted, tokens int64
	tenant              string
}

// dialed returns a client whose connections dial makes.
func dialed(t *testing.T, server *redistest.Redis, dial func(ctx context.Context, network, addr string) (net.Conn, error)) redis.UniversalClient {
	options := server.Options()
	options.Dialer = dial
	client := redis.NewUniversalClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func newAccounting(t *testing.T, server *redistest.Server, seed uint64) *accounting {
	clock := &redistest.Clock{}
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: clock.Dial})
	m := &accounting{Rand: rand.New(rand.NewPCG(seed, 0)), clock: clock, client: client, runs: &atomic.Int64{}, given: map[string]heldJob{}}
	if err := server.Client().FlushDB(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := server.Client().ScriptFlush(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	m.gate = &gate{queue: modelQueue, redis: client, limits: &effective.Calendars{Queue: modelQueue, Redis: client}, onWake: func() {}, replans: newReplans()}
	m.publish(t)
	return m
}

func (m *accounting) from(low, high int64) int64 { return low + m.Int64N(high-low+1) }

func (m *accounting) tell(what string, about any) {
	m.story = append(m.story, fmt.Sprintf("%d, redis %+d: %s %+v", m.now(), m.ahead, what, about))
}

func (m *accounting) yes() bool { return m.IntN(2) == 0 }

func (m *accounting) one(values ...int64) int64 { return values[m.IntN(len(values))] }

func (m *accounting) now() int64 { return m.clock.Now().UnixMicro() - m.ahead }

// until advances the time to a moment.
func (m *accounting) until(at int64) {
	if wait := at - m.now(); wait > 0 {
		m.clock.Step(time.Duration(wait) * time.Microsecond)
	}
}

func (m *accounting) pass(*testing.T) {
	m.until(m.now() + m.from(0, 300_000))
}

func (m *accounting) publish(t *testing.T) {
	l := limitsInForce{
		rate:   m.one(3, 7, 40, 100, 1000),
		burst:  m.from(3, 20),
		shared: m.one(9, 100, 3000),
	}
	own, all := perTenant(l.rate), sharedBy(l.shared)
	own.Burst, own.Unit = l.burst, "tokens"
	l.since = m.now()
	err := operate.Publish(context.Background(), m.client, limits.Set{Queues: map[string]limits.Queue{modelQueue: {Limits: []limits.Limit{own, all}}}})
	if err != nil {
		t.Fatal(err)
	}
	m.limits = append(m.limits, l)
	m.tell("published", l)
}

// step sets Redis's clock, which the workers notice at once. It does nothing while a job
// that was given back waits: see TestGivenBackSlotIsOver.
func (m *accounting) step(*testing.T) {
	if len(m.given) > 0 {
		return
	}
	by := m.from(-2_000_000, 2_000_000)
	m.clock.Step(time.Duration(by) * time.Microsecond)
	m.ahead += by
	m.tell("the clock was set", by)
	if by > 0 {
		m.steps = append(m.steps, m.now())
	}
}

func (m *accounting) enqueue(t *testing.T) {
	var jobs []Job
	for range m.from(1, 12) {
		jobs = append(jobs, Job{
			Kind: "call", Queue: modelQueue, Tenant: []string{"a", "b"}[m.IntN(2)], Payload: json.RawMessage(`{}`),
			Costs: map[string]int64{"tokens": m.from(1, 3)},
		})
	}
	enqueueAll(t, NewClient(m.client), jobs...)
	m.waits += len(jobs)
}

// round hands jobs over to one of two workers.
func (m *accounting) round(t *testing.T) {
	worker := []string{"w1", "w2"}[m.IntN(2)]
	run := m.runs.Add(maxHanded) - maxHanded + 1
	before := m.now()
	reply, err := store.DispatchScript.Run(context.Background(), m.client, store.ScriptKeys(modelQueue), modelQueue, maxHanded, maxHanded,
		store.Horizon.Microseconds(), pickup.Microseconds(), "", ",call,", time.Minute.Microseconds(), worker, run, 0, -1, leadLasts.Milliseconds())
	if err != nil {
		t.Fatal(err)
	}
	for i, entry := range reply.([]any)[10].([]any) {
		values := entry.([]any)
		job := heldJob{id: fmt.Sprint(values[0]), owner: ownerOf(worker, run+int64(i)), granted: before}
		task, err := asynqwire.Decode(fmt.Append(nil, values[1]))
		if err != nil || fmt.Sprint(values[2]) != "go" {
			t.Fatalf("%v, %v", values, err)
		}
		running := newRunning(modelQueue, job.id, task)
		job.tenant, job.tokens = running.Tenant, running.Costs["tokens"]
		job.slot(numberOf(t, values[3]), numberOf(t, values[4]), m.ahead)
		if was := m.given[job.id]; was.earliest == job.earliest && was.latest == job.latest {
			job.granted = was.granted // it kept its slot, which it may have under other limits
		}
		m.tell("handed over", job)
		m.held = append(m.held, job)
		delete(m.given, job.id)
	}
}

// numberOf reads an integer of a reply.
func numberOf(t *testing.T, value any) int64 {
	t.Helper()
	n, err := strconv.ParseInt(fmt.Sprint(value), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (j *heldJob) slot(earliest, latest, ahead int64) {
	j.earliest, j.latest, j.told = earliest-ahead, latest-ahead, latest
}

// end is the last moment at which the worker lets the call leave.
func (m *accounting) end(j heldJob) int64 { return min(j.latest, j.told-m.ahead) }

// send lets calls leave, each at a moment of its slot.
func (m *accounting) send(t *testing.T) {
	now, last := m.now(), int64(0)
	m.held = slices.DeleteFunc(m.held, func(j heldJob) bool {
		from, to := max(j.earliest, now), m.end(j)
		if from > to || !m.yes() {
			return false
		}
		at := m.one(from, to, (from+to)/2)
		tokens := m.from(0, j.tokens)
		m.sent = append(m.sent, sentCall{at, j.granted, tokens, j.tenant})
		m.tell(fmt.Sprint("sent at ", at), j)
		last = max(last, at)
		m.settle(t, j, settleQuestion{outcome: "done", actual: fmt.Sprintf("tokens=%d;", tokens), to: "gone"})
		m.waits--
		return true
	})
	m.until(last)
}

// late asks for another slot for each job whose slot has passed.
func (m *accounting) late(t *testing.T) {
	for i, j := range m.held {
		if m.end(j) >= m.now() {
			continue
		}
		granted := m.now()
		reply, err := store.SlotScript.Run(context.Background(), m.client, store.ScriptKeys(modelQueue), modelQueue, (2 * store.Horizon).Microseconds(), inHand.Microseconds(), "",
			j.id, j.owner, j.tenant, "", "call", 1, fmt.Sprintf("tokens=%d;", j.tokens), time.Minute.Microseconds(), store.Endless)
		if err != nil {
			t.Fatal(err)
		}
		values := reply.([]any)
		if values[0] == "park" {
			m.settle(t, j, settleQuestion{outcome: "refused", to: "lane"})
			m.held[i].id = ""
			continue
		}
		if values[0] != "go" {
			t.Fatal(values)
		}
		m.held[i].slot(numberOf(t, values[1]), numberOf(t, values[2]), m.ahead)
		m.held[i].granted = granted
		m.tell("got another slot", m.held[i])
	}
	m.held = slices.DeleteFunc(m.held, func(j heldJob) bool { return j.id == "" })
}

// giveBack returns jobs to their lanes, with their slots.
func (m *accounting) giveBack(t *testing.T) {
	m.held = slices.DeleteFunc(m.held, func(j heldJob) bool {
		if !m.yes() {
			return false
		}
		q := settleQuestion{outcome: "keep", to: "lane"}
		if m.now() >= j.latest || j.told-m.ahead != j.latest {
			q.text = "passed" // see gate.ahead
		}
		m.settle(t, j, q)
		m.given[j.id] = j
		m.tell("given back, "+q.text, j)
		return true
	})
}

func (m *accounting) settle(t *testing.T, j heldJob, q settleQuestion) {
	q.id, q.owner, q.tenant, q.kind = j.id, j.owner, j.tenant, "call"
	answers, err := m.gate.sendSettle([]settleQuestion{q})
	if err != nil || !answers[0].mine {
		t.Fatalf("%+v: %+v, %v", q, answers, err)
	}
}

// law checks every two calls against both limits.
func (m *accounting) law(t *testing.T) {
	slices.SortStableFunc(m.sent, func(a, b sentCall) int { return int(a.at - b.at) })
	for _, tenant := range []string{"a", "b", ""} {
		var calls []sentCall
		for _, call := range m.sent {
			if tenant == "" {
				call.tokens = 1
			}
			if tenant == "" || call.tenant == tenant {
				calls = append(calls, call)
			}
		}
		for i, first := range calls {
			n, granted := int64(0), first.granted
			for _, last := range calls[i:] {
				n, granted = n+last.tokens, min(granted, last.granted)
				rate, burst := m.most(tenant, granted, last.at)
				passed := last.at - first.at + 1 // both moments are whole µs
				for _, at := range m.steps {
					if granted <= at && at <= last.at {
						// The buckets saw a time that was taken back. Slots are given ahead, before it and in it.
						burst *= 2
						passed += min(last.at-first.at+1, 2*store.Horizon.Microseconds())
					}
				}
				if (n-burst)*1e6 > rate*passed {
					t.Errorf("tenant %q: %d permits within %d µs; %d/s and %d at once are allowed", tenant, n, last.at-first.at, rate, burst)
				}
			}
		}
	}
}

// most returns the maximum that the limits allowed in a period.
func (m *accounting) most(tenant string, from, to int64) (rate, burst int64) {
	for i, l := range m.limits {
		if l.since > to || i+1 < len(m.limits) && m.limits[i+1].since < from {
			continue
		}
		if tenant == "" {
			rate, burst = max(rate, l.shared), 1
		} else {
			rate, burst = max(rate, l.rate), max(burst, l.burst)
		}
	}
	return rate, burst
}

// drain sends all remaining jobs: none may be lost, and no bucket may stay closed.
func (m *accounting) drain(t *testing.T) {
	for range 3000 {
		if m.waits == 0 {
			return
		}
		m.late(t)
		now := m.now()
		m.held = slices.DeleteFunc(m.held, func(j heldJob) bool {
			from := max(j.earliest, now)
			if from > m.end(j) {
				return false
			}
			m.until(from)
			m.settle(t, j, settleQuestion{outcome: "done", to: "gone"})
			m.sent = append(m.sent, sentCall{from, j.granted, j.tokens, j.tenant})
			m.tell(fmt.Sprint("sent at ", from), j)
			m.waits--
			return true
		})
		m.round(t)
		if len(m.held) == 0 {
			m.until(m.now() + 100_000)
		}
	}
	t.Errorf("%d jobs did not go", m.waits)
}
