package throttle

import (
	"cmp"
	"context"
	_ "embed"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
)

//go:embed renew.lua
var renewLua string

var renewScript = limitlua.NewScript(renewLua).AllowOOM()

func (l Limit) lease() time.Duration { return cmp.Or(l.Lease, DefaultLease) }

// leases holds the reservations of this process that have permits of concurrency
// limits, and renews them.
type leases struct {
	mu   sync.Mutex
	held map[*Reservation]struct{}
	none chan struct{} // closed when the last one is removed
}

func (h *leases) add(l *Limiter, r *Reservation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.held) == 0 {
		h.held, h.none = map[*Reservation]struct{}{}, make(chan struct{})
		go h.renew(l, h.none)
	}
	h.held[r] = struct{}{}
}

// remove reports whether the permit was still held.
func (h *leases) remove(r *Reservation) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, held := h.held[r]
	if held {
		if delete(h.held, r); len(h.held) == 0 {
			close(h.none)
		}
	}
	return held
}

// list returns what is held, and nothing if another renew has begun meanwhile: each
// reservation is renewed by one of them.
func (h *leases) list(none <-chan struct{}) []*Reservation {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.none != none {
		return nil
	}
	return slices.Collect(maps.Keys(h.held))
}

// renew runs for as long as permits are held.
func (h *leases) renew(l *Limiter, none <-chan struct{}) {
	shortest := day
	for _, limit := range l.limits {
		if limit.Algorithm == Concurrency {
			shortest = min(shortest, limit.lease())
		}
	}
	// Three tries before the first one lapses.
	tick := time.NewTicker(shortest / 4)
	defer tick.Stop()
	for {
		select {
		case <-none:
			return
		case <-tick.C:
			var round sync.WaitGroup
			for _, group := range l.renewals(h.list(none)) {
				round.Go(func() { h.extend(l, group, shortest/4) }) // one that has no answer does not hold up others
			}
			round.Wait()
		}
	}
}

// renewal is one permit of a reservation.
type renewal struct {
	r     *Reservation
	key   string
	lease time.Duration
	last  *time.Time // when Redis was asked for it, the last time that it answered
}

// renewals groups permits so that each group is in one slot of a cluster and is renewed
// by one script of bounded length.
func (l *Limiter) renewals(list []*Reservation) [][]renewal {
	var groups [][]renewal
	spread := l.spread()
	for _, r := range list {
		for i, limit := range l.limits {
			if limit.Algorithm != Concurrency {
				continue
			}
			one := renewal{r, r.call.buckets[i], limit.lease(), &r.renewed[i]}
			last := len(groups) - 1
			if last < 0 || spread || len(groups[last]) >= maxTogether {
				groups = append(groups, nil)
				last++
			}
			groups[last] = append(groups[last], one)
		}
	}
	return groups
}

// extend renews one group. Without an answer the next round tries again, until the lease
// is over: then a permit has lapsed, whether or not Redis can be asked.
func (h *leases) extend(l *Limiter, group []renewal, patience time.Duration) {
	keys := make([]string, len(group))
	args := []any{l.clock()}
	for i, one := range group {
		keys[i] = one.key
		args = append(args, one.r.call.id, one.lease.Microseconds())
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	asked := l.time()
	reply, err := renewScript.RunUntilDone(ctx, l.client, keys, args...)
	if err != nil {
		for _, one := range group {
			if passed(*one.last, l.time()) >= one.lease {
				h.lose(one.r)
			}
		}
		return
	}
	results, _ := reply.([]any)
	for i, result := range results {
		if result == int64(0) {
			h.lose(group[i].r)
		} else {
			*group[i].last = asked
		}
	}
}

// lose ends the renewals of a reservation of which a permit has lapsed.
func (h *leases) lose(r *Reservation) {
	if h.remove(r) {
		close(r.lost)
	}
}
