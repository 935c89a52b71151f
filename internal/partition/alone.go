package partition

import (
	"maps"
	"slices"

	"github.com/headgate/headgate/internal/limitlua"
)

// Alone returns the text of the bucket of the limit from now on, if nobody shares it any more. leases are the buckets
// of holders, who spend nothing of them any more: what they have not spent is not used, and what other holders have
// may be. A holder that the ledger does not know never asked. A concurrency limit has no text: its calls are known.
// The ledger is of no use any more.
func (l *Ledger) Alone(now int64, leases map[string]limitlua.Lease) string {
	last := int64(0)
	for _, lease := range leases {
		last = max(last, lease.Last)
	}
	switch {
	case l.rated():
		until := l.usedUntil(leases)
		return limitlua.Rate(until.US, until.Units, l.s.Rate.Permit, l.s.Rate.Flow, last, now)
	case l.spec.Pool:
		l.fill(now)
		for _, holder := range slices.Sorted(maps.Keys(leases)) {
			acc := l.s.Accounts[holder]
			if acc == nil {
				acc = &account{}
			}
			owed, unspent := acc.owes(leases[holder].Spent)
			l.s.Next = l.s.Rate.after(l.s.Next, owed)
			l.comeBack(unspent, acc.Lack)
		}
		until := l.s.Next
		return limitlua.Rate(until.US, until.Units, l.s.Rate.Permit, l.s.Rate.Flow, last, now)
	case l.spec.Algorithm == "fw":
		start, end, used := l.usedOf(now, leases)
		return limitlua.Window(start, end, used, last, now)
	}
	return ""
}

// Unspent returns how many permits of a pool or a quota these holders have and have not spent.
func (l *Ledger) Unspent(leases map[string]limitlua.Lease) (n int64) {
	for holder, lease := range leases {
		if acc := l.s.Accounts[holder]; acc != nil && lease.From == l.s.Start {
			n += max(0, acc.N-lease.Spent)
		}
	}
	return n
}

// usedOf returns what is used of a quota, and the window.
func (l *Ledger) usedOf(now int64, leases map[string]limitlua.Lease) (start, end, used int64) {
	start, end, used = l.s.Start, l.s.End, l.s.Used
	for holder, acc := range l.s.Accounts {
		if lease, known := leases[holder]; known && lease.From == start {
			used += lease.Spent
		} else {
			used += acc.N
		}
	}
	for holder, lease := range leases {
		if l.s.Accounts[holder] != nil || lease.Ends <= now {
			continue
		}
		if end <= now {
			start, end, used = lease.From, lease.Ends, 0
		}
		used += lease.Spent
	}
	return start, end, used
}

// usedUntil returns the moment on the timeline of a rate after which nothing is used.
func (l *Ledger) usedUntil(leases map[string]limitlua.Lease) Point {
	unused := slices.Clone(l.s.Free)
	for holder, acc := range l.s.Accounts {
		for _, has := range leases[holder].Spans {
			for _, s := range acc.Spans {
				if s.From == (Point{has.From, has.FromUnits}) {
					unused = append(unused, Span{s.pace, Point{has.Next, has.NextUnits}, s.End})
				}
			}
		}
	}
	slices.SortFunc(unused, byTime)
	until := l.s.Next
	for holder, lease := range leases {
		if l.s.Accounts[holder] != nil {
			continue
		}
		for _, has := range lease.Spans {
			if next := (Point{has.Next, has.NextUnits}); until.before(next) {
				until = next
			}
		}
	}
	for _, s := range slices.Backward(unused) {
		if s.End != until {
			break
		}
		until = s.From
	}
	return until
}
