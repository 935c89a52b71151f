package main

import (
	"container/heap"
	"fmt"

	"github.com/headgate/headgate/internal/partition"
)

const (
	round    = 5 * ms  // from one round of dispatch to the next
	ahead    = 50 * ms // how long before its slot a job is handed to its worker
	pickup   = 10 * ms
	patience = 25 * ms // until an ask without an answer is sent again
)

// part is a partition, with its Redis and its workers: lanes in order of virtual time, as
// dispatch.lua has them, and what it has of the limit.
type part struct {
	w       *world
	name    string
	holder  *partition.Holder
	lives   int
	lanes   lanes
	virtual float64
	weight  float64 // of its tenants with backlog
	jobs    int64
	firsts  int64 // jobs that left before their partition's virtual time
	held    []job // in their workers' hands until their slots
	asks    int
	stopped bool
	paused  bool
	sent    func(at int64)
}

type job struct {
	tenant int32
	partition.Slot
}

// begin starts a life of what the partition knows of the limit.
func (p *part) begin() {
	p.lives++
	p.holder = &partition.Holder{Member: p.name, ID: fmt.Sprintf("%s/%d", p.name, p.lives)}
}

// add adds a job of a tenant.
func (p *part) add(i int32) {
	t := &p.w.tenants[i]
	if t.jobs++; t.jobs == 1 {
		t.since = p.w.now
		p.weight += t.weight
		heap.Push(&p.lanes, lane{max(p.virtual-2/t.weight, t.finish), i})
	}
	p.jobs++
}

// next takes the job whose turn it is: that of the tenant with the least virtual time.
func (p *part) next() int32 {
	i := p.lanes[0].tenant
	t := &p.w.tenants[i]
	if p.lanes[0].start < p.virtual {
		p.firsts++
	}
	p.virtual = max(p.virtual, p.lanes[0].start)
	t.finish = p.lanes[0].start + 1/t.weight
	p.jobs--
	if t.jobs--; t.jobs > 0 {
		p.lanes[0].start = t.finish
		heap.Fix(&p.lanes, 0)
	} else {
		t.since = 0
		p.weight -= t.weight
		heap.Pop(&p.lanes)
	}
	return i
}

// dispatch is a round: calls leave, and jobs are handed to workers shortly before their slots.
func (p *part) dispatch() {
	p.w.after(round, p.dispatch)
	if p.stopped {
		return
	}
	now := p.w.now
	for len(p.held) > 0 && p.held[0].Earliest < now+round {
		p.call(p.held[0])
		p.held = p.held[1:]
	}
	for p.jobs > 0 && !p.paused {
		if slot, ok := p.holder.Next(now, pickup, 1); !ok || slot.Earliest > now+ahead {
			break
		}
		slot, _ := p.holder.Take(now, pickup, 1)
		p.held = append(p.held, job{p.next(), slot})
	}
}

// call lets a call leave in its slot. If the process was stopped until the slot was over, the
// job waits for another.
func (p *part) call(j job) {
	if j.Latest < p.w.now {
		p.add(j.tenant)
		return
	}
	at := max(j.Earliest, p.w.now)
	p.w.tenants[j.tenant].calls++
	p.w.calls = append(p.w.calls, at)
	if p.sent != nil {
		p.sent(at)
	}
}

// ask asks the ledger for what the partition needs, and again if there is no answer.
func (p *part) ask() {
	w := p.w
	if p.stopped {
		w.after(patience, p.ask)
		return
	}
	need := partition.Need{Permits: p.jobs, Weight: p.weight, Firsts: p.firsts}
	p.lanes.before(p.virtual, 0, func(i int32) {
		need.Firsts++
		need.Weight -= w.tenants[i].weight
	})
	if p.paused {
		need.Permits = 0
	}
	if need.Permits == 0 && p.holder.Held() == 0 {
		w.after(patience, p.ask)
		return
	}
	p.asks++
	asks, began, holder, a := p.asks, w.now, p.holder, p.holder.Ask(w.now, need)
	w.send(func() {
		if w.away {
			return
		}
		answer := w.ledger.Ask(w.now, a)
		w.send(func() {
			if p.stopped || p.holder != holder {
				return
			}
			holder.Accept(answer)
			if p.asks == asks {
				p.asks++
				w.after(max(0, began+partition.Every.Microseconds()-w.now), p.ask)
			}
		})
	})
	w.after(patience, func() {
		if p.asks == asks {
			p.ask()
		}
	})
}

// lane is a tenant with backlog, and the virtual time at which its next job starts.
type lane struct {
	start  float64
	tenant int32
}

type lanes []lane

func (l lanes) Len() int { return len(l) }
func (l lanes) Less(i, j int) bool {
	return l[i].start < l[j].start || l[i].start == l[j].start && l[i].tenant < l[j].tenant
}
func (l lanes) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l *lanes) Push(x any)   { *l = append(*l, x.(lane)) }
func (l *lanes) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}

// before calls visit for each lane below i that starts before a virtual time.
func (l lanes) before(start float64, i int, visit func(tenant int32)) {
	if i < len(l) && l[i].start < start {
		visit(l[i].tenant)
		l.before(start, 2*i+1, visit)
		l.before(start, 2*i+2, visit)
	}
}
