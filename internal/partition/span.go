package partition

// A Point is a moment on the timeline of a rate: µs of the ledger's clock, and units below a
// µs as limits.lua counts them.
type Point struct {
	US    int64 `json:"us"`
	Units int64 `json:"u,omitempty"`
}

func (p Point) before(q Point) bool { return p.US < q.US || p.US == q.US && p.Units < q.Units }

// up is the first whole µs that is not before the point.
func (p Point) up() int64 {
	if p.Units > 0 {
		return p.US + 1
	}
	return p.US
}

// pace is a rate as limits.lua counts it: one permit is Permit units, and Flow units flow back
// per µs. Burst is how many permits may go at once; 0 for a leaky bucket that shapes.
type pace struct {
	Permit int64 `json:"p"`
	Flow   int64 `json:"r"`
	Burst  int64 `json:"b,omitempty"`
}

// after returns the point that is n permits after p, or before it, if n is negative.
func (r pace) after(p Point, n int64) Point { return r.shift(p, n*r.Permit) }

// shift returns the point that is so many units after p, or before it.
func (r pace) shift(p Point, units int64) Point {
	units += p.Units
	us := floorDiv(units, r.Flow)
	return Point{p.US + us, units - us*r.Flow}
}

// units returns how many units lie between two points.
func (r pace) units(from, to Point) int64 {
	return max(0, (to.US-from.US)*r.Flow+to.Units-from.Units)
}

// permits returns how many whole permits lie between two points.
func (r pace) permits(from, to Point) int64 {
	return r.units(from, to) / r.Permit
}

// until returns how many permits, one behind the other from p, begin no later than us.
func (r pace) until(p Point, us int64) int64 {
	if us < p.up() {
		return 0
	}
	return ((us-p.US)*r.Flow-p.Units)/r.Permit + 1
}

// earliest returns when a call of n permits that begins at p may go at the earliest, like
// limit_earliest. The call must go by p.
func (r pace) earliest(p Point, n int64) int64 {
	slack := int64(0)
	if r.Burst > 0 {
		slack = r.Burst - n
	}
	// Rounded up: a moment too early would break the law.
	return p.US - floorDiv(slack*r.Permit-p.Units, r.Flow)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// A Span is a part of the timeline of a rate that one holder has for itself. Each permit takes
// Permit/Flow µs of it.
type Span struct {
	pace
	From Point `json:"from"`
	End  Point `json:"end"`
}

// byTime orders spans, of which no two overlap.
func byTime(a, b Span) int {
	if a.From.before(b.From) {
		return -1
	}
	return 1
}

// cut removes what lies before a moment, and returns false if no whole permit is left.
func (s *Span) cut(us int64) bool {
	if s.From.up() < us {
		s.From = Point{US: us}
	}
	return s.From.before(s.End) && s.permits(s.From, s.End) > 0
}
