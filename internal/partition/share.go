package partition

import (
	"math"
	"sort"
	"time"
)

// Times of the exchange between holders and a ledger. A holder with backlog asks every Every,
// and sooner if it got no reply.
const (
	Every   = 50 * time.Millisecond
	Horizon = 150 * time.Millisecond // how far ahead of their slots permits are leased
	Lead    = 20 * time.Millisecond  // what begins sooner would not arrive in time, and is not leased

	// silent is after which time without an ask nothing is kept for a member.
	silent = 5 * Every
	// newcomer is how long a member counts as new: the others that came with it have asked by then, too.
	newcomer = 2 * Every
	// newPart is the part of what is left of a quota that a new member gets at most.
	newPart = 8
)

// claim is what a ledger knows of a member's backlog. The members share permits by start-time
// fair queueing, as tenants do in dispatch.lua: a virtual time rises, and each member gets its
// weight for each unit that it rises by.
//
// Tenants that come with a job and go are not part of a member's weight: they count as backlog
// only while they wait, which is short in one partition and long in another. Their jobs go
// before all others in dispatch.lua, so they take permits from the tenants that have backlog.
// The member gets as many more.
type claim struct {
	Want   int64   `json:"want"`   // permits that it could use beyond those it has
	First  int64   `json:"first"`  // permits that it is to get for first jobs
	Weight float64 `json:"weight"` // of its tenants with backlog
	Level  float64 `json:"level"`  // the virtual time up to which it got permits
	Start  float64 `json:"start"`  // its level before it got permits last
	Asked  int64   `json:"asked"`  // µs
	Since  int64   `json:"since"`  // since when it has backlog, µs
	Had    float64 `json:"had"`    // of a concurrency limit: the seconds that its calls took, for each unit of weight
	Got    int64   `json:"got"`    // when it got permits last, µs
	Firsts int64   `json:"firsts"` // first jobs that it ever had, as it counts them
}

// place returns where the claim's n-th permit is in the order in which permits are given:
// those for first jobs from -2 to -1, in step with those of other claims, and the others
// from 0 on, by virtual time since the lowest.
func (c *claim) place(n int64, lowest float64) float64 {
	if n <= c.First {
		return float64(n-1)/float64(c.First) - 2
	}
	return c.Level - lowest + float64(n-1-c.First)/c.Weight
}

// before returns how many permits of the claim come before a place, or at it.
func (c *claim) before(place float64, at bool, lowest float64) int64 {
	count := func(x float64) float64 {
		if at {
			return math.Floor(x) + 1
		}
		return math.Ceil(x)
	}
	first := float64(c.First)
	n := first + max(0, count((place-(c.Level-lowest))*c.Weight))
	if place < 0 {
		n = max(0, min(first, count((place+2)*first)))
	}
	return int64(min(n, float64(c.Want)))
}

// entitled returns how many of the next pool permits belong to the claim of a member, if they
// are given one by one to the claim whose next permit has the least place.
func entitled(claims map[string]*claim, member string, pool int64) int64 {
	own, lowest := claims[member], math.Inf(1)
	for _, c := range claims {
		lowest = min(lowest, c.Level)
	}
	most := max(0, min(own.Want, pool))
	return int64(sort.Search(int(most), func(i int) bool {
		n := int64(i) + 1
		place := own.place(n, lowest)
		for name, other := range claims {
			if other != own && other.Want > 0 {
				// Of two at one place, the one that got nothing for longer comes first.
				n += other.before(place, other.Got < own.Got || other.Got == own.Got && name < member, lowest)
			}
		}
		return n > pool
	}))
}

// shareOf returns the part of a member's weight in that of all members with backlog; 1 if it has none.
func shareOf(claims map[string]*claim, member string) float64 {
	sum := 0.0
	for _, c := range claims {
		sum += c.Weight
	}
	own := claims[member]
	if own == nil || own.Weight <= leastWeight {
		return 1
	}
	return own.Weight / sum
}

// report replaces what the ledger knows of a member by what it says.
func report(claims map[string]*claim, a *Ask, now int64) *claim {
	for name, c := range claims {
		if now-c.Asked > silent.Microseconds() {
			delete(claims, name)
		}
	}
	c := &claim{Want: max(0, a.Want), Weight: a.Weight, Asked: now, Firsts: a.Firsts}
	if !(c.Weight >= leastWeight && c.Weight <= 1/leastWeight) {
		c.Weight = leastWeight
	}
	old := claims[a.Member]
	if old != nil {
		c.Level, c.Start, c.Got, c.First, c.Since = old.Level, old.Start, old.Got, max(0, old.First+a.Firsts-old.Firsts), old.Since
	}
	c.First = min(c.First, c.Want)
	if old == nil {
		c.Since = now
	}
	if old == nil || old.Want == 0 || c.Weight <= leastWeight {
		// One that had no backlog earns no credit, as a tenant that was away. It begins where the
		// others began: one of them may have got all while it was alone.
		lowest, highest := math.Inf(1), math.Inf(-1)
		for name, other := range claims {
			if name != a.Member && other.Want > 0 {
				lowest, highest = min(lowest, other.Start), max(highest, other.Level)
			}
		}
		if lowest <= highest {
			if c.Weight <= leastWeight {
				lowest = highest // what it gets does not count, so it is not ahead of others
			}
			c.Level = max(lowest, min(c.Level, highest))
			c.Start = c.Level // before it gets anything, another one may come
		}
	}
	claims[a.Member] = c
	return c
}

// turns lets members take turns at calls, of which there may be fewer than members: a member's level is how
// long it had calls. It rises in steps of half a second of one call of a member of mean weight. Within a step
// whoever has calls keeps them, because what one gives back stands idle until another one asks. n is how many
// calls the member had since its last ask.
func turns(claims map[string]*claim, c, old *claim, n int64) {
	if c.Had = c.Level; old != nil && old.Want > 0 {
		c.Had = old.Had
	}
	if old != nil && c.Weight > leastWeight {
		c.Had += float64(n) * float64(c.Asked-old.Asked) / 1e6 / c.Weight
	}
	sum, members := 0.0, 0.0
	for _, one := range claims {
		if one.Weight > leastWeight {
			sum, members = sum+one.Weight, members+1
		}
	}
	if sum > 0 {
		step := members / sum / 2
		c.Level = math.Floor(c.Had/step) * step
	}
	c.Start = c.Level
}

// leastWeight is the weight of a member that has first jobs only.
const leastWeight = 1e-9

// granted records that a member got n of the permits that it wanted.
func (c *claim) granted(n, now int64) {
	first := min(n, c.First)
	c.Want, c.First, c.Got = max(0, c.Want-n), c.First-first, now
	c.Start = c.Level
	if c.Weight > leastWeight { // else they are for first jobs that the member has not counted yet
		c.Level += float64(n-first) / c.Weight
	}
}
