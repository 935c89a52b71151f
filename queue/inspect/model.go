package inspect

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/queue/internal/fluid"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/sendwindow"
)

// bucketState is the state of a bucket under one limit, in the form that the model takes.
type bucketState struct {
	spec        limitlua.Spec
	bucket      fluid.Bucket
	pausedUntil float64
}

// readStates computes the states of the buckets once for all questions. It leaves out
// sliding window logs, which are read separately, and states with an error, which each
// question finds itself.
func (f *forecast) readStates() {
	f.states = make([]bucketState, len(f.buckets))
	for i := range f.lanes {
		l := &f.lanes[i]
		for j, at := range l.buckets {
			if at < 0 || f.states[at].spec.Algorithm != "" || f.limits.Queue.Limits[j].Spec.Algorithm == "sl" {
				continue
			}
			spec := f.spec(j, l)
			if b, pausedUntil, err := f.bucket(j, l, spec); err == nil {
				b.Opens = slices.Clip(b.Opens) // each model appends to its own copy
				f.states[at] = bucketState{spec, b, pausedUntil}
			}
		}
	}
}

// bucket returns the state of a bucket under a limit.
func (f *forecast) bucket(i int, l *lane, spec limitlua.Spec) (b fluid.Bucket, pausedUntil float64, err error) {
	if at := l.buckets[i]; at < len(f.states) && f.states[at].spec == spec {
		return f.states[at].bucket, f.states[at].pausedUntil, nil
	}
	b = fluid.Bucket{Limit: i}
	if spec.Algorithm == "sl" {
		log, ok := f.logs[l.buckets[i]]
		if !ok {
			log = [2]float64{float64(spec.Burst), 0}
			if f.lost+spec.Window > f.now.UnixMicro() {
				log = [2]float64{0, f.until(f.lost)}
			}
		}
		b.Quota, b.Max, b.Period = float64(spec.Burst), float64(spec.Burst), float64(spec.Window)/1e6
		b.Level, b.Opens = log[0], []float64{max(log[1]+b.Period, fluid.Tiny)}
		return b, 0, nil
	}
	text, _ := f.texts[l.buckets[i]].(string)
	if text == "" && f.lost > 0 {
		text = spec.Lost(f.lost, f.calendars[i])
	}
	stored, err := spec.Stored(text, f.now.UnixMicro(), f.calendars[i])
	if err != nil {
		return b, 0, fmt.Errorf("limit %q: %w", f.rules.Limits[i].Name, err)
	}
	if stored.PausedUntil > 0 {
		pausedUntil = f.until(stored.PausedUntil)
	}
	b.Level = stored.Left
	switch spec.Algorithm {
	case "fw", "sc":
		share := float64(spec.Burst) * stored.Share
		b.Quota, b.Used = max(1, math.Floor(share*f.adapted(i, l))), stored.Used
		b.Level, b.Max = min(b.Level+b.Quota-share, b.Quota), b.Quota
		from := max(f.now.UnixMicro()+1, stored.Opens)
		if spec.Window > 0 {
			b.Period = float64(spec.Window) / 1e6
			b.Opens = []float64{f.until(from + (spec.Window-from%spec.Window)%spec.Window)}
		} else {
			for _, opens := range f.calendars[i] {
				if opens >= from {
					b.Opens = append(b.Opens, f.until(opens))
				}
			}
			n := len(b.Opens)
			b.Period = (b.Opens[n-1] - b.Opens[0]) / float64(n-1)
		}
		if spec.Algorithm == "sc" {
			b.Spread, b.Rate = true, stored.Previous/b.Period
		}
		if stored.Opens > 0 {
			b.Level, b.Rate, b.Given = 0, 0, stored.Given
		}
	default:
		b.Rate = float64(spec.Flow) / float64(spec.Permit) * 1e6
		b.Max = 1
		b.Rate *= f.adapted(i, l) * stored.Share
		if spec.Algorithm == "tb" || spec.Algorithm == "lm" {
			b.Max = float64(max(spec.Burst, 1))
		}
		b.Level = min(b.Level, b.Max)
	}
	return b, pausedUntil, nil
}

// adapted returns the part to which an adaptive limit is lowered now, as in lanes.lua.
func (f *forecast) adapted(i int, l *lane) float64 {
	part, _ := f.lowered(i, l)
	return part
}

// lowered returns the same, and why.
func (f *forecast) lowered(i int, l *lane) (float64, Lowered) {
	if !f.rules.Limits[i].Adaptive {
		return 1, NotLowered
	}
	var a adapt
	if _, err := fmt.Sscan(f.beside[f.keyBeside(ofAdaptive, f.levelOf(f.rules.Limits[i], f.buckets[l.buckets[i]]))], &a.low, &a.high, &a.since, &a.told, &a.at); err != nil {
		return 1, NotLowered
	}
	return a.part(f.asked.UnixMicro())
}

// openings returns when the send windows of a lane are all open, in seconds from now,
// opening and closing in turns; nil if they always are. key identifies the windows.
func (f *forecast) openings(l *lane) (all []float64, key string, err error) {
	if len(f.limits.Queue.Windows) == 0 {
		return nil, "", nil
	}
	texts := []string{f.limits.Tenants[l.Tenant].Window, f.limits.Queue.SendWindows[limits.AllKinds], f.limits.Queue.SendWindows[store.Unescape(l.Kind)]}
	key = strings.Join(texts, "\n")
	if key == "\n\n" {
		return nil, key, nil
	}
	if known, ok := f.hours[key]; ok {
		return known, key, nil
	}
	for _, text := range texts {
		if text == "" {
			continue
		}
		window, err := sendwindow.Parse(text)
		if err != nil {
			return nil, "", err
		}
		var hours []float64
		for _, moment := range window.Openings(f.now, f.now.Add(hoursAhead)) {
			hours = append(hours, f.until(moment))
		}
		if all == nil {
			all = hours
		} else {
			all = intersect(all, hours)
		}
	}
	if f.hours == nil {
		f.hours = map[string][]float64{}
	}
	f.hours[key] = all
	return all, key, nil
}

// hoursAhead is how far ahead send windows are computed. After that they count as open.
const hoursAhead = 400 * 24 * time.Hour

// intersect returns the openings that two lists have in common.
func intersect(a, b []float64) []float64 {
	both := []float64{}
	for i, j := 0, 0; i < len(a) && j < len(b); {
		if opens, closes := max(a[i], b[j]), min(a[i+1], b[j+1]); opens < closes {
			both = append(both, opens, closes)
		}
		if a[i+1] < b[j+1] {
			i += 2
		} else {
			j += 2
		}
	}
	return both
}

// permits returns how many permits a job takes of a limit.
func permits(limit limits.Limit, spec limitlua.Spec, costs map[string]float64) float64 {
	n := costs[limit.Unit]
	if spec.Burst > 0 && n > float64(spec.Burst) {
		n = float64(spec.Burst)
	}
	return n
}

// subject is a lane in question.
type subject struct {
	lane    string
	jobs    float64            // its number of jobs, which replaces what was read
	costs   map[string]float64 // of each job
	watched []*fluid.Member    // places in the lane
}

// model returns the model of all waiting jobs, in which the subjects replace their lanes.
// The members are in the order of f.lanes.
func (f *forecast) model(subjects ...subject) (*fluid.Model, []*fluid.Member, error) {
	of := func(name string) *subject {
		for i := range subjects {
			if subjects[i].lane == name {
				return &subjects[i]
			}
		}
		return nil
	}
	m := &fluid.Model{}
	members := make([]*fluid.Member, len(f.lanes))
	lanesOf, usersOf := map[string]float64{}, make([]int, len(f.buckets))
	for i := range f.lanes {
		l := &f.lanes[i]
		if l.jobs > 0 || of(l.Name) != nil {
			lanesOf[l.Tenant]++
			for _, at := range l.buckets {
				if at >= 0 {
					usersOf[at]++
				}
			}
		}
	}
	shared, classes := make([]int, len(f.buckets)), map[string]*fluid.Flow{}
	pausedUntil := make([]float64, len(f.buckets)) // for shared buckets
	alike := map[*fluid.Flow]float64{}             // number of members of a class so far
	all := make([]fluid.Member, len(f.lanes))
	var uses []fluid.Use // of the current lane, as are the next two
	var private []fluid.Bucket
	var class []byte
	for i := range f.lanes {
		l := &f.lanes[i]
		mine := of(l.Name)
		one := &all[i]
		*one = fluid.Member{Jobs: float64(l.jobs), Times: 1 / f.part, Limit: -1}
		if l.added {
			one.Times = 1
		}
		members[i] = one
		unit := f.costOf(l)
		if mine != nil {
			one.Jobs, one.Times, unit = mine.jobs, 1, mine.costs
		} else if l.jobs <= 0 {
			continue
		}
		weight := f.limits.Weight(l.Tenant) / lanesOf[l.Tenant] / max(unit[""], fluid.Tiny)
		from := f.closedUntil(l)
		hours, windows, err := f.openings(l)
		if err != nil {
			return nil, nil, err
		}
		uses, private = uses[:0], private[:0]
		part := f.limits.Guarantee(l.Tenant) / lanesOf[l.Tenant]
		class = binary.LittleEndian.AppendUint64(class[:0], math.Float64bits(weight))
		class = append(binary.LittleEndian.AppendUint64(class, math.Float64bits(part)), windows...)
		for j, limit := range f.rules.Limits {
			name := l.buckets[j]
			if name < 0 {
				continue // how long calls take is not known
			}
			spec := f.spec(j, l)
			cost := permits(limit, spec, unit)
			if cost <= 0 {
				continue
			}
			class = binary.LittleEndian.AppendUint64(class, math.Float64bits(cost))
			common := usersOf[name] > 1 || len(limit.Per) == 0
			if common && shared[name] > 0 {
				at := shared[name] - 1
				from = max(from, pausedUntil[name])
				uses = append(uses, fluid.Use{Bucket: at, Cost: cost})
				class = binary.AppendVarint(class, int64(at))
				continue
			}
			b, paused, err := f.bucket(j, l, spec)
			if err != nil {
				return nil, nil, err
			}
			from = max(from, paused)
			if common {
				at := len(m.Buckets)
				shared[name], pausedUntil[name] = at+1, paused
				b.Whole = len(limit.Per) == 0
				uses = append(uses, fluid.Use{Bucket: at, Cost: cost})
				class = binary.AppendVarint(class, int64(at))
				m.Buckets = append(m.Buckets, b)
				continue
			}
			b.Private = true
			// Levels count as equal if they differ by less than a permit, or by little
			// compared to the waiting jobs, or if the lane cannot use them up.
			if need := one.Jobs * cost; b.Level >= need && mine == nil {
				b.Level = b.Max
			}
			uses = append(uses, fluid.Use{Bucket: -1, Cost: cost})
			private = append(private, b)
			_, size := math.Frexp(one.Jobs)
			class = binary.AppendVarint(class, int64(-1-j))
			class = binary.LittleEndian.AppendUint64(class, math.Float64bits(b.Rate))
			class = binary.LittleEndian.AppendUint64(class, math.Float64bits(b.Max))
			class = binary.LittleEndian.AppendUint64(class, math.Float64bits(b.Period))
			class = binary.AppendVarint(class, int64(math.Floor(b.Level/max(1, b.Max/64, math.Ldexp(1, size)/64))))
			if len(b.Opens) > 0 {
				class = binary.AppendVarint(class, int64(b.Opens[0]*1000))
			}
		}
		class = binary.LittleEndian.AppendUint64(class, math.Float64bits(from))
		if mine != nil {
			class = append(append(class, "subject "...), mine.lane...)
		}
		known := classes[string(class)]
		if known == nil {
			known = &fluid.Flow{Weight: weight, Part: part, From: from, Hours: hours, Uses: slices.Clone(uses)}
			if mine != nil {
				known.Members = mine.watched
			}
			classes[string(class)] = known
			m.Flows = append(m.Flows, known)
			next := 0
			for k := range known.Uses {
				if known.Uses[k].Bucket < 0 {
					known.Uses[k].Bucket = len(m.Buckets)
					m.Buckets = append(m.Buckets, private[next])
					next++
				}
			}
		} else {
			// The level of a class is the mean of its members' levels.
			next := 0
			for _, u := range known.Uses {
				if b := &m.Buckets[u.Bucket]; b.Private {
					b.Level += (private[next].Level - b.Level) / (alike[known] + 1)
					next++
				}
			}
		}
		alike[known]++
		known.Members = append(known.Members, one)
	}
	return m, members, nil
}
