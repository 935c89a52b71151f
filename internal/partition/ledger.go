package partition

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
)

// Ledger says which permits of one limit are leased to whom. It has no clock and does no I/O:
// times are passed in, in µs since the epoch of one clock, and whoever keeps the ledger stores
// it with [Ledger.MarshalJSON] after each change, before the answer is used.
type Ledger struct {
	spec limitlua.Spec
	s    state
}

// state is what is stored of a ledger.
type state struct {
	Claims   map[string]*claim   `json:"claims"` // by member
	Accounts map[string]*account `json:"accounts"`
	Version  uint64              `json:"version"` // of the account that changed last

	// Of a rate, and of a pool, whose theoretical arrival time Next is:
	Next Point  `json:"next"`           // the end of what was ever leased
	Free []Span `json:"free,omitempty"` // given back, in order of time
	Rate pace   `json:"rate,omitzero"`  // under which Next was reached

	At     int64             `json:"at,omitempty"`     // the latest time; but of a concurrency limit
	Clocks map[string]*clock `json:"clocks,omitempty"` // those that have a name

	// Of a quota: the window, and what was leased of it to holders that are no more; of a
	// concurrency limit: Used is not to be leased before End, as it may be in use.
	Start int64 `json:"start,omitempty"`
	End   int64 `json:"end,omitempty"`
	Used  int64 `json:"used,omitempty"`
	// Lost is from when to when a lost ledger of a quota may have leased: these windows count as used.
	Lost [2]int64 `json:"lost,omitzero"`
}

// account is what one holder has.
type account struct {
	Member  string `json:"member"`
	Version uint64 `json:"version"` // changes whenever the account does
	Asked   int64  `json:"asked"`
	Spans   []Span `json:"spans,omitempty"`  // of a rate
	N       int64  `json:"n,omitempty"`      // of a quota or a pool: used ones count
	Spent   int64  `json:"spent,omitempty"`  // of a pool: those of N whose calls have left
	Back    int64  `json:"back,omitempty"`   // of a pool: how many spent ones came back, in all
	Told    int64  `json:"told,omitempty"`   // of a pool: calls that left until then are known to have
	Lows    []low  `json:"lows,omitempty"`   // of a pool
	Lapsed  int64  `json:"lapsed,omitempty"` // of a pool: permits whose lease ended, which count as spent until the holder says
	Lack    int64  `json:"lack,omitempty"`   // of a pool: how much lacked to make it full, at least, since then; in units
	Until   int64  `json:"until,omitempty"`  // of a concurrency limit or a pool
	Fair    int64  `json:"fair,omitempty"`   // the same: what it should have, as it was told
	Over    bool   `json:"over,omitempty"`   // of a quota or a pool: it was told that nothing is left for its next call
}

// forgotten is how long the account of a holder that has nothing is remembered, and lost how long one of which
// permits of a pool could come back: its bucket in Redis lives no longer either.
const forgotten, lost = 10 * time.Minute, 24 * time.Hour

// NewLedger returns the ledger of a limit of which nothing was leased yet. The limit is a rate that
// shapes (tb, lb), a pool (tb), a quota (fw) or a concurrency limit (cc): those with a sliding window
// would have to know each call. A leaky bucket without a capacity admits calls that cost one permit.
func NewLedger(spec limitlua.Spec) *Ledger {
	l := &Ledger{spec: spec}
	l.s.Claims, l.s.Accounts = map[string]*claim{}, map[string]*account{}
	l.s.Rate = l.pace()
	return l
}

// SetLimit changes the limit. What was leased stands: a new rate begins where it ends, and it counts
// against a new quota. Under another algorithm, nothing was leased yet, and what was leased before is used.
func (l *Ledger) SetLimit(spec limitlua.Spec, now int64) {
	if Family(l.spec) == Family(spec) {
		l.spec = spec
		return
	}
	used, version, at := l.owed(now), l.s.Version, l.s.At
	l.spec = spec
	l.s = NewLedger(spec).s
	l.s.Version, l.s.At = max(version, uint64(now)), at
	switch most := spec.Burst; Family(spec) {
	case "fw":
		l.s.Start, l.s.End, l.s.Used = now, now, min(used, most) // until it turns to the window that holds now
	case "rate", "pool":
		if most == 0 { // a queue without a bound takes over what a year admits
			most = max(1, int64(min(float64(year)*float64(spec.Flow), math.Exp2(52)))/spec.Permit)
		}
		l.s.Next = l.s.Rate.after(Point{US: now}, min(used, most))
	}
}

const year = int64(366 * 24 * time.Hour / time.Microsecond)

// owed returns how many permits of the limit count as used, for another one that takes over: those that are leased among
// them. Calls in flight are not permits used.
func (l *Ledger) owed(now int64) int64 {
	switch Family(l.spec) {
	case "rate":
		from := Point{US: now}
		if !from.before(l.s.Next) { // also if nothing was leased yet: 0 is too long ago to be counted from
			return 0
		}
		n := l.s.Rate.permits(from, l.s.Next)
		if l.s.Rate.after(from, n).before(l.s.Next) {
			n++ // a part of one counts as one
		}
		return n
	case "pool":
		l.fill(now)
		return l.spec.Burst - l.left(now)
	case "fw":
		if now < l.s.End {
			return l.taken()
		}
	}
	return 0
}

// Version rises with each change of an account, which has to be stored before the answer is used.
func (l *Ledger) Version() uint64 { return l.s.Version }

func (l *Ledger) pace() pace {
	r := pace{Permit: l.spec.Permit, Flow: l.spec.Flow}
	if l.spec.Algorithm == "tb" {
		r.Burst = l.spec.Burst
	}
	return r
}

func (l *Ledger) rated() bool { return Family(l.spec) == "rate" }

// Family says which limits have leases of one form: these stand if one limit becomes the other. It is "pool", "rate", or
// the algorithm.
func Family(spec limitlua.Spec) string {
	switch {
	case spec.Pool:
		return "pool"
	case spec.Algorithm == "tb" || spec.Algorithm == "lb":
		return "rate"
	}
	return spec.Algorithm
}

// MarshalJSON returns the ledger without its limit.
func (l *Ledger) MarshalJSON() ([]byte, error) { return json.Marshal(l.s) }

// UnmarshalJSON reads what MarshalJSON returned, into a ledger that [NewLedger] made. If the
// limit's rate is another one since, what was leased stands.
func (l *Ledger) UnmarshalJSON(text []byte) error {
	s := state{Claims: map[string]*claim{}, Accounts: map[string]*account{}}
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	l.s = s
	return nil
}

// Lost makes a ledger safe to use after its stored state was lost, or may be older than what
// holders were told: after a failover, for example. It leases nothing that may be leased
// already, by a worker whose time was ahead by as much, or that leased as much further ahead. This
// costs a rate its horizon and burst, a quota the rest of its window, and a concurrency limit the
// time of a lease.
func (l *Ledger) Lost(now, ahead int64) {
	version := l.s.Version
	l.s = state{Claims: map[string]*claim{}, Accounts: map[string]*account{}, Rate: l.pace()}
	// Each account has a version, so a lost one is never used again.
	l.s.Version = max(version, uint64(now))
	switch Family(l.spec) {
	case "rate":
		l.s.Next, l.s.At = Point{US: l.horizon(now, ahead) + l.s.Rate.after(Point{}, l.maxCost()).up()}, now
	case "pool":
		l.s.Next, l.s.At = l.s.Rate.after(Point{US: now + ahead + poolLease.Microseconds()}, l.spec.Burst), now
	case "fw":
		l.s.Lost = [2]int64{now, now + ahead}
	case "cc":
		l.s.Used, l.s.End = l.spec.Burst, now+ahead+l.spec.Lease
	}
}

// maxCost is the largest cost of a call. A lease for one may exceed the horizon by as much.
func (l *Ledger) maxCost() int64 { return max(1, l.spec.Burst) }

// horizon is the last moment that a permit leased now may begin at, to a holder that asks again later than
// others by as much as ahead.
func (l *Ledger) horizon(now, ahead int64) int64 {
	r := l.s.Rate
	return now + ahead + Horizon.Microseconds() + max(0, r.Burst-1)*r.Permit/r.Flow
}

// used returns how much of what can be leased now is leased, from 0 to 1.
func (l *Ledger) used(now, ahead int64) float64 {
	if !l.rated() {
		return max(0, min(1, 1-float64(l.left(now))/float64(l.spec.Burst)))
	}
	first := now + Lead.Microseconds()
	return max(0, min(1, float64(l.s.Next.up()-first)/float64(l.horizon(now, ahead)-first)))
}

// left returns how many permits of a pool, a quota or a concurrency limit are not leased.
func (l *Ledger) left(now int64) int64 {
	if l.spec.Pool {
		return l.s.Rate.permits(l.s.Next, l.s.Rate.after(Point{US: now}, l.spec.Burst))
	}
	return l.spec.Burst - l.taken()
}

func (l *Ledger) taken() int64 {
	n := l.s.Used
	for _, acc := range l.s.Accounts {
		n += acc.N
	}
	return n
}

// Ask is what a holder tells a ledger, and what it would like to have. [Holder.Ask] makes it.
type Ask struct {
	Member  string  `json:"member"`  // the name of the partition's queue, or of a queue that shares the limit
	Holder  string  `json:"holder"`  // of this life of the member's state
	Version uint64  `json:"version"` // the latest version of the holder's account that it has seen
	Want    int64   `json:"want"`    // permits that it could use at once, beyond those it has
	Least   int64   `json:"least"`   // how many its next call takes; 0: 1
	Weight  float64 `json:"weight"`  // of its tenants with backlog
	Firsts  int64   `json:"firsts"`  // first jobs that it ever had

	// Ahead is how much later than others the holder can ask again, in µs. Permits of a rate are leased as much
	// further ahead. It is in the time of the ask, too: that is when the answer arrives, at the latest.
	Ahead int64 `json:"ahead,omitempty"`

	// Clock names the clock of the time of the ask, if askers have several: those of queues that share a budget.
	Clock string `json:"clock,omitempty"`

	// Keep is a rate's: the spans of the holder, without what it gives back. If it never asked, the limit was not
	// leased before, and is used up to their end.
	Keep []Span `json:"keep,omitempty"`

	// N is of another limit: permits that it keeps, used ones of a quota or a pool included. If it never asked, it
	// has them; of a pool, they were used.
	N int64 `json:"n,omitempty"`

	// Of a pool: how many of N are spent by calls that have left; how many spent ones came back, in all; and until
	// when the first call had left from which some did that the ledger may not know of. At is when this was so.
	Spent int64 `json:"spent,omitempty"`
	Back  int64 `json:"back,omitempty"`
	Since int64 `json:"since,omitempty"`
	At    int64 `json:"at,omitempty"`

	// Calendar has the starts of the windows around now of a quota that has a calendar, in µs, ascending.
	Calendar []int64 `json:"calendar,omitempty"`
}

// Answer is the state of the holder's account.
type Answer struct {
	Version uint64  `json:"version"`
	Spans   []Span  `json:"spans,omitempty"` // of a rate, by time
	N       int64   `json:"n,omitempty"`     // of a quota or a pool: used ones included; of a concurrency limit: calls at once
	Back    int64   `json:"back,omitempty"`  // of a pool: what the ledger knows that came back
	From    int64   `json:"from,omitempty"`  // of a quota: its window
	Until   int64   `json:"until,omitempty"` // when N lapses
	Share   float64 `json:"share,omitempty"` // but of a concurrency limit: the part that the member gets, by the weights of those with backlog
	Used    float64 `json:"used,omitempty"`  // the same: how much of what can be leased is, 0 to 1
	Fair    int64   `json:"fair,omitempty"`  // of a concurrency limit: what the member should have
}

// Ask leases permits to a holder.
//
// An ask takes effect only if it has the current version of the account, so it takes effect
// once, however often and late it arrives. In any case the answer is what the account is now,
// so whoever missed an answer gets it with the next one.
func (l *Ledger) Ask(now int64, a Ask) Answer {
	if l.spec.Pool {
		now -= a.Ahead // permits are spent when they arrive, which may be sooner
	}
	now = l.expire(now, &a)
	acc := l.s.Accounts[a.Holder]
	if acc == nil {
		acc = &account{Member: a.Member}
		l.s.Accounts[a.Holder] = acc
		if l.spec.Pool {
			acc.N, acc.Spent, acc.Back = a.Spent, a.Spent, a.Back // what it counts on from
			acc.Told, acc.Lows = a.At, []low{{a.At, 0}}
		}
		if a.Version > 0 { // an account that was forgotten, or one of another ledger
			l.s.Version = max(l.s.Version, a.Version)
			l.changed(acc)
		} else {
			l.begin(now, acc, &a)
		}
	}
	acc.Asked = max(acc.Asked, now)
	if acc.Version == a.Version {
		switch {
		case l.rated():
			l.askRate(now, acc, &a)
		case l.spec.Pool:
			l.askPool(now, acc, &a)
		default:
			l.askStock(now, acc, &a)
		}
	}
	answer := Answer{
		Version: acc.Version, Spans: slices.SortedFunc(slices.Values(acc.Spans), byTime),
		N: acc.N, Back: acc.Back, Until: acc.Until, Fair: acc.Fair,
	}
	if l.spec.Algorithm != "cc" {
		answer.Share, answer.Used = shareOf(l.s.Claims, a.Member), l.used(now, a.Ahead)
	}
	if l.spec.Algorithm == "fw" {
		answer.From, answer.Until = l.s.Start, l.s.End
	}
	if acc.Over {
		answer.Used = 1
	}
	return answer
}

// begin takes note of what was used of a limit before it was leased, which the first ask of its bucket says.
func (l *Ledger) begin(now int64, acc *account, a *Ask) {
	for _, s := range a.Keep {
		if l.rated() && l.s.Next.before(s.End) {
			l.s.Next = s.End
			l.changed(acc)
		}
	}
	if l.spec.Pool && a.N > 0 {
		l.s.Next = l.s.Rate.after(l.s.Next, a.N)
		l.changed(acc)
	}
	if l.spec.Algorithm != "cc" || a.N <= 0 {
		return
	}
	n := a.N
	for _, other := range l.s.Accounts { // the same calls may be under way under an earlier name
		if other.Member == a.Member {
			n -= other.N
		}
	}
	if n > 0 {
		acc.N, acc.Until = n, now+l.spec.Lease
		l.changed(acc)
	}
}

func (l *Ledger) changed(acc *account) {
	l.s.Version++
	acc.Version = l.s.Version
}

// expire forgets leases that are over. It returns the time; that of a quota does not go back within a second.
func (l *Ledger) expire(now int64, a *Ask) int64 {
	if l.spec.Algorithm != "cc" {
		if at, back := l.setBack(now, a.Clock); back {
			l.s.At = at
			for _, acc := range l.s.Accounts { // those who ask no more are forgotten by this time
				acc.Asked = min(acc.Asked, at)
			}
			for _, c := range l.s.Claims {
				c.Asked = min(c.Asked, at)
			}
			if l.rated() || l.spec.Pool {
				l.Lost(now, 0)
			}
		}
		l.s.At = max(l.s.At, now)
	}
	if l.rated() || l.spec.Pool {
		l.convert(now)
	}
	if l.spec.Pool {
		now = l.s.At
		l.fill(now)
	}
	if l.spec.Algorithm == "fw" {
		now = l.s.At
		l.turn(now, a.Calendar)
	}
	if l.spec.Algorithm == "cc" && now >= l.s.End {
		l.s.Used = 0
	}
	for holder, acc := range l.s.Accounts {
		acc.Spans = slices.DeleteFunc(acc.Spans, func(s Span) bool { return s.End.US < now })
		if l.spec.Algorithm == "cc" && acc.N > 0 && acc.Until <= now {
			acc.N = 0
			l.changed(acc)
		}
		since := now - acc.Asked
		has := acc.N > 0 || len(acc.Spans) > 0
		if l.spec.Pool {
			has = acc.out() > 0 || min(acc.Lapsed, acc.Lack) > 0 && since <= lost.Microseconds()
		}
		if !has && since > forgotten.Microseconds() {
			delete(l.s.Accounts, holder)
		}
	}
	return now
}

// setBack reports whether the clock of an ask was set back, and returns what is the latest time then. One that is only
// behind others was not: the ledger does not go back for it to a window that is over by the others.
func (l *Ledger) setBack(now int64, name string) (at int64, back bool) {
	const wobble = int64(time.Second / time.Microsecond)
	if name == "" {
		return now, now < l.s.At-wobble
	}
	if l.s.Clocks == nil {
		l.s.Clocks = map[string]*clock{}
	}
	own := l.s.Clocks[name]
	if own == nil {
		own = &clock{At: now}
		l.s.Clocks[name] = own
	}
	went := max(0, now-own.At)
	back = now < own.At-wobble
	if back || went > 0 {
		own.At = now
	}
	own.Quiet, at = 0, own.At
	for name, other := range l.s.Clocks {
		if other == own {
			continue
		}
		if other.Quiet += went; other.Quiet > forgotten.Microseconds() {
			delete(l.s.Clocks, name)
			continue
		}
		at = max(at, other.At)
	}
	return at, back || at < l.s.At-wobble // nobody goes by a clock any more that was ahead
}

// clock is the clock of some of those that ask a ledger.
type clock struct {
	At    int64 `json:"at"`              // the latest ask by it
	Quiet int64 `json:"quiet,omitempty"` // for how long others asked since then
}

// turn goes on to another window of a quota. If that is not the next one, because the quota was changed or
// the clock set back, what was leased counts against it.
func (l *Ledger) turn(now int64, calendar []int64) {
	start, end := l.spec.WindowAt(now, calendar)
	if end == 0 || start == l.s.Start && end == l.s.End {
		return
	}
	used := l.taken()
	if start >= l.s.End {
		used = 0
	}
	if l.s.Lost[0] < end && l.s.Lost[1] >= start {
		used = l.spec.Burst
	}
	l.s.Start, l.s.End, l.s.Used = start, end, used
	for _, acc := range l.s.Accounts {
		acc.N = 0
		l.changed(acc)
	}
}

// convert follows a change of the rate. What was leased stands, and the new rate begins where
// it ends. What is owed is no less than before, in permits and in time.
func (l *Ledger) convert(now int64) {
	was, is := l.s.Rate, l.pace()
	if was == is {
		return
	}
	l.s.Rate = is
	owed := float64(max(0, l.s.Next.up()-now))
	slower := float64(is.Permit) / float64(is.Flow) * float64(was.Flow) / float64(was.Permit)
	// No slots were given of a pool, so a faster rate holds for what is owed, too.
	if most := math.Exp2(51); slower > 1 || l.spec.Pool {
		owed = min(math.Ceil(owed*slower), most)
	}
	l.s.Next = Point{US: now + int64(owed)}
	l.eachLack(func(lack int64) int64 {
		return int64(min(float64(lack)/float64(was.Permit)*float64(is.Permit), math.Exp2(62)))
	})
}

// askRate takes back what the holder does not keep, and leases the next part of the timeline:
// first what others gave back.
func (l *Ledger) askRate(now int64, acc *account, a *Ask) {
	l.takeBack(acc, a.Keep)
	r := l.s.Rate
	c := report(l.s.Claims, a, now)

	first := now + Lead.Microseconds()
	l.s.Free = slices.DeleteFunc(l.s.Free, func(s Span) bool { return s.pace != r || !s.cut(first) })
	pool := int64(0)
	for i := range l.s.Free {
		l.s.Free[i].cut(first)
		pool += r.permits(l.s.Free[i].From, l.s.Free[i].End)
	}
	next := l.s.Next
	if next.up() < first {
		next = Point{US: first}
	}
	pool += r.until(next, l.horizon(now, a.Ahead))

	n := entitled(l.s.Claims, a.Member, pool)
	if n == 0 {
		return
	}
	// Its turn has come, so a lease is enough for a call, even if its last permits begin beyond the
	// horizon.
	least, got := min(max(1, a.Least), l.maxCost()), int64(0)
	for i := 0; i < len(l.s.Free) && got < n; {
		s := &l.s.Free[i]
		have := r.permits(s.From, s.End)
		if have < least {
			i++ // it would be of no use
			continue
		}
		part := Span{r, s.From, r.after(s.From, min(max(n-got, least), have))}
		got += r.permits(part.From, part.End)
		acc.Spans = append(acc.Spans, part)
		s.From = part.End
		if r.permits(s.From, s.End) == 0 {
			l.s.Free = slices.Delete(l.s.Free, i, i+1)
		}
	}
	// Free spans that are too short are not replaced with permits beyond the horizon, because
	// [Ledger.Lost] would not know of those.
	if rest := min(n-got, r.until(next, l.horizon(now, a.Ahead))); rest > 0 {
		rest = max(rest, least)
		l.s.Next = r.after(next, rest)
		acc.Spans = append(acc.Spans, Span{r, next, l.s.Next})
		got += rest
	}
	if got > 0 {
		c.granted(got, now)
		l.changed(acc)
	}
}

// takeBack shortens the spans of an account to what its holder keeps of them. A span that the
// holder does not name is kept: it may not know of it yet.
func (l *Ledger) takeBack(acc *account, keep []Span) {
	back := false
	for i := range acc.Spans {
		s := &acc.Spans[i]
		for _, k := range keep {
			if k.From == s.From && k.End.before(s.End) && !k.End.before(s.From) {
				l.s.Free = append(l.s.Free, Span{s.pace, k.End, s.End})
				s.End, back = k.End, true
			}
		}
	}
	if !back {
		return
	}
	acc.Spans = slices.DeleteFunc(acc.Spans, func(s Span) bool { return !s.From.before(s.End) })
	slices.SortFunc(l.s.Free, byTime)
	l.changed(acc)
}

// askStock leases permits of a quota or a concurrency limit.
func (l *Ledger) askStock(now int64, acc *account, a *Ask) {
	calls := l.spec.Algorithm == "cc"
	// A call may turn out to have used more of a quota than it took.
	if a.N >= 0 && a.N < acc.N || a.N > acc.N && !calls {
		acc.N = a.N
		l.changed(acc)
	}
	left := l.left(now)
	if !calls && now >= l.s.End {
		left = 0 // the calendar does not have this time
	}
	old := l.s.Claims[a.Member]
	c := report(l.s.Claims, a, now)
	var n int64
	if calls {
		turns(l.s.Claims, c, old, acc.N)
		c.Want += acc.N
		fair := entitled(l.s.Claims, a.Member, l.spec.Burst)
		if fair != acc.Fair {
			acc.Fair = fair
			l.changed(acc)
		}
		n = min(fair-acc.N, left)
	} else {
		n = l.grant(now, c, a, left)
	}
	if n > 0 {
		acc.N += n
		if !calls {
			c.granted(n, now)
		}
		l.changed(acc)
	}
	if over := l.left(now) < max(1, a.Least); !calls && acc.Over != over {
		acc.Over = over
		l.changed(acc)
	}
	if calls && acc.N > 0 && (n > 0 || acc.Until < now+l.spec.Lease*3/4) {
		acc.Until = now + l.spec.Lease
		l.changed(acc)
	}
}

// grant returns how many of the permits that are left of a pool or a quota a member gets: none that are too few for its
// next call.
func (l *Ledger) grant(now int64, c *claim, a *Ask, left int64) int64 {
	n := entitled(l.s.Claims, a.Member, left)
	if n == 0 {
		return 0
	}
	if now-c.Since < newcomer.Microseconds() {
		n = min(n, left/newPart)
	}
	least := max(a.Least, 1)
	n = min(max(n, least), left)
	return n - n%least // what is too little for a call would only come back
}
