package main

import (
	"container/heap"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/partition"
)

type config struct {
	partitions, tenants int
	rate, burst         int64
	load, lost          float64
	length              time.Duration
	seed                uint64
}

const (
	epoch = 1_795_000_000_000_000 // when it begins, µs
	ms    = 1_000                 // µs
)

// world is all that is simulated. Times are µs of the one clock.
type world struct {
	c       config
	random  *rand.Rand
	zipf    *rand.Zipf
	now     int64
	events  events
	planned int

	limit    limitlua.Limit
	ledger   *partition.Ledger
	stored   []byte // what a failover of the ledger's Redis goes back to
	away     bool   // the ledger does not answer
	parts    []*part
	tenants  []tenant
	messages int

	calls    []int64 // when each call left
	absences [][2]int64
	shares   []float64 // calls / weight of each tenant that had backlog all the time
	weights  []float64 // of these tenants
	resumed  []int64   // when the calls of a partition left after its pause
}

// tenant has a queue of equal jobs.
type tenant struct {
	part   int32
	jobs   int32
	weight float64
	finish float64 // virtual time at which its last job was done
	since  int64   // when its backlog began; 0: it has none
	calls  int
}

func newWorld(c config) (*world, error) {
	w := &world{c: c, random: rand.New(rand.NewPCG(c.seed, 0)), now: epoch}
	w.zipf = rand.NewZipf(w.random, 1.1, 50, uint64(c.tenants-1))
	w.limit = limitlua.Limit{Algorithm: "token_bucket", Count: c.rate, Period: time.Second, Burst: c.burst}
	layout := partition.Layout{Queue: "webhook", N: c.partitions}
	if err := layout.Check(); err != nil {
		return nil, err
	}
	w.ledger = partition.NewLedger(w.limit.Spec(true, partition.Horizon))
	for i := range c.partitions {
		p := &part{w: w, name: layout.Name(i + 1)}
		p.begin()
		w.parts = append(w.parts, p)
	}
	w.tenants = make([]tenant, c.tenants)
	for i := range w.tenants {
		w.tenants[i] = tenant{part: int32(layout.Of(fmt.Sprintf("tenant-%d", i)) - 1), weight: float64(1 + i%3)}
	}
	return w, nil
}

// run simulates the whole time. Fairness is measured from a tenth of it to six tenths, while
// messages are lost and nodes stop for a moment. Then nodes die.
func (w *world) run() {
	n := int64(len(w.parts))
	for i, p := range w.parts {
		w.after(int64(i)*round/n, p.dispatch)
		w.after(int64(i)*partition.Every.Microseconds()/n, p.ask)
	}
	w.after(0, w.arrive)
	w.after(0, w.store)
	at := func(part float64, do func()) { w.after(int64(part*float64(w.c.length.Microseconds())), do) }
	for part := 0.15; part < 0.6; part += 0.1 {
		at(part, func() { w.stop(w.node(int64(part*20)), 100*ms) })
	}
	at(0.1, func() {
		for i := range w.tenants {
			w.tenants[i].calls = 0
		}
	})
	at(0.6, w.share)
	at(0.62, func() { w.die(w.node(1)) })
	at(0.7, w.failover)
	at(0.8, func() { w.pause(w.parts[0]) })
	end := epoch + w.c.length.Microseconds()
	for len(w.events) > 0 && w.events[0].at <= end {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
	slices.Sort(w.calls)
}

// node returns the partitions of one of eight nodes.
func (w *world) node(i int64) []*part {
	var parts []*part
	for j := int(i % 8); j < len(w.parts); j += 8 {
		parts = append(parts, w.parts[j])
	}
	return parts
}

// arrive adds the jobs of one millisecond.
func (w *world) arrive() {
	jobs := float64(w.c.rate) * w.c.load / 1000
	for n := jobs; n > 0; n-- {
		if n >= 1 || w.random.Float64() < n {
			i := int32(w.zipf.Uint64())
			w.parts[w.tenants[i].part].add(i)
		}
	}
	w.after(ms, w.arrive)
}

// share records what each tenant got that had backlog all the time.
func (w *world) share() {
	from := epoch + w.c.length.Microseconds()/10
	for i := range w.tenants {
		if t := &w.tenants[i]; t.since > 0 && t.since <= from {
			w.shares, w.weights = append(w.shares, float64(t.calls)/t.weight), append(w.weights, t.weight)
		}
	}
}

// stop stops the processes of a node for a while. Their clock goes on.
func (w *world) stop(node []*part, length int64) {
	for _, p := range node {
		p.stopped = true
		w.after(length, func() { p.stopped = false })
	}
}

// die ends a node for an eighth of the time. It comes back with its jobs, and has forgotten
// what it had of the limit.
func (w *world) die(node []*part) {
	w.stop(node, w.c.length.Microseconds()/8)
	for _, p := range node {
		p.begin()
		for _, j := range p.held {
			p.add(j.tenant)
		}
		p.held = nil
	}
}

// store keeps the state of the ledger that a replica has.
func (w *world) store() {
	if !w.away {
		w.stored, _ = json.Marshal(w.ledger)
	}
	w.after(100*ms, w.store)
}

// failover takes the ledger away for half a second. It comes back as its replica had it.
func (w *world) failover() {
	w.away = true
	w.absences = append(w.absences, [2]int64{w.now, w.now + 500*ms})
	w.after(500*ms, func() {
		w.away = false
		if err := json.Unmarshal(w.stored, w.ledger); err != nil {
			panic(err)
		}
		w.ledger.Lost(w.now, 0)
	})
}

// pause pauses a partition, whose backlog grows meanwhile.
func (w *world) pause(p *part) {
	p.paused = true
	w.after(w.c.length.Microseconds()/20, func() {
		p.paused = false
		w.resumed = append(w.resumed, w.now)
		p.sent = func(at int64) { w.resumed = append(w.resumed, at) }
	})
}

// send delivers a message after the time that it takes, or loses it.
func (w *world) send(deliver func()) {
	w.messages++
	delay := 200 + w.random.Int64N(1300)
	switch chance := w.random.Float64(); {
	case chance < w.c.lost:
		return
	case chance < 2*w.c.lost:
		delay = w.random.Int64N(60 * ms)
	}
	w.after(delay, deliver)
}

// event is something that happens at a time. Of two at one time, the first one planned comes
// first.
type event struct {
	at    int64
	order int
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (w *world) after(delay int64, do func()) {
	w.planned++
	heap.Push(&w.events, event{w.now + delay, w.planned, do})
}
