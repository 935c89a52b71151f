package queue

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

// accountBuckets compares the buckets before and after a script. A damaged bucket is
// unchanged. An intact one is still intact, and has no fewer permits taken, unless the
// script gives back permits. Each job that a script releases with a new slot, or beyond its
// limits, is charged to all limits of its lane.
func (d *damage) accountBuckets(t *testing.T, seed uint64, script string, limits []limits.Limit, before, after sight, now time.Time) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s, state %d: %s", script, seed, fmt.Sprintf(format, args...))
	}
	took := map[string]float64{} // by bucket, permits more than before
	for name := range after.Buckets {
		if _, known := before.Buckets[name]; !known {
			before.Buckets[name] = ""
		}
	}
	damaged := map[string]bool{}
	for name, was := range before.Buckets {
		limit := limitOf(limits, name)
		if limit == nil {
			continue // its limit no longer exists
		}
		used, err := taken(*limit, was, now)
		if err != nil {
			if damaged[name] = true; after.Buckets[name] != was {
				fail("%s held %q, which is no bucket, and holds %q now", name, was, after.Buckets[name])
			}
			continue
		}
		uses, err := taken(*limit, after.Buckets[name], now)
		if err != nil {
			fail("%s held %q, and now %q: %v", name, was, after.Buckets[name], err)
			continue
		}
		took[name] = uses - used
		givesBack := script == "settle" || script == "slot" || strings.HasPrefix(script, "verbs cancel")
		if took[name] < -0.01 && !givesBack && limit.Concurrency == 0 {
			fail("%s held %q, and now %q: %v permits came back", name, was, after.Buckets[name], -took[name])
		}
	}

	owed := map[string]float64{} // by bucket
	for id, places := range after.Places {
		place := map[bool]string{true: "active", false: "pending"}[script == "dispatch"]
		if !slices.Contains(places, place) || slices.Contains(before.Places[id], place) {
			continue
		}
		var earliest, latest, position int64
		was, is := before.Fields[id], after.Fields[id]
		_, _ = fmt.Sscan(is["hg_slot"], &earliest, &latest, &position)
		switch {
		case script == "dispatch" && latest > 0 && was["hg_slot"] != is["hg_slot"]:
		case strings.HasPrefix(script, "verbs run") && earliest > 0:
			_, _ = fmt.Sscan(was["hg_slot"], &earliest, &latest, &position)
			if latest > now.Add(-time.Minute).UnixMicro() {
				continue // it keeps a slot whose permits it has
			}
		default:
			continue
		}
		group := is["group"]
		for _, place := range before.Places[id] {
			if name, ok := strings.CutPrefix(place, "g:"); ok {
				group = name
			}
		}
		if strings.ContainsRune(group, utf8.RuneError) {
			continue // the account is JSON, which has no such bytes: its buckets are under another name
		}
		lane := store.ParseLane(group)
		for _, limit := range limits {
			name := store.BucketKey(damagedQueue, limit, &lane)
			switch cost := costOf(was, limit.Unit); {
			case limit.Concurrency > 0:
				if !strings.Contains(" "+after.Buckets[name]+" ", " "+id+" ") && was["hg_permits"] == "" {
					fail("job %s was released without a permit of %s", id, name)
				}
			case cost > 0 && damaged[name]:
				fail("job %s was released under %s, which is no bucket: %q", id, name, before.Buckets[name])
			default:
				owed[name] += cost
			}
		}
	}
	for name, cost := range owed {
		if took[name] < cost-0.01 {
			fail("%v permits of %s were released, and %v were taken: %q, then %q", cost, name, took[name], before.Buckets[name], after.Buckets[name])
		}
	}
}

// limitOf returns the limit of a bucket, by its key; nil: there is no such limit.
func limitOf(limits []limits.Limit, name string) *limits.Limit {
	for i, limit := range limits {
		if strings.HasPrefix(name, store.BucketKey(damagedQueue, limit, &store.Lane{})) {
			return &limits[i]
		}
	}
	return nil
}

// taken returns how many permits of a bucket are taken; 0 for a bucket of another
// algorithm, which is left when a limit's algorithm has changed.
func taken(limit limits.Limit, text string, now time.Time) (float64, error) {
	is, text, _ := strings.Cut(text, " ")
	spec := effective.Spec(limit)
	switch is {
	case "":
		return 0, nil
	case "zset":
		if limit.Concurrency > 0 {
			return float64(len(strings.Fields(text))), nil
		}
		return 0, nil
	case "list":
		if !strings.HasPrefix(text, "@") {
			return 0, fmt.Errorf("%q is no log", text)
		}
		if spec.Algorithm == "sl" {
			return float64(len(strings.Fields(text)) - 1), nil
		}
		return 0, nil
	case "string":
	default:
		return 0, fmt.Errorf("a %s is no bucket", is)
	}
	if spec.Algorithm == "sl" || limit.Concurrency > 0 {
		_, err := (limitlua.Spec{Algorithm: "fw", Window: 1}).Stored(text, now.UnixMicro(), nil)
		return 0, err
	}
	stored, err := spec.Stored(text, now.UnixMicro(), effective.Windows(limit, now, 2))
	if err != nil {
		return 0, err
	}
	switch spec.Algorithm {
	case "fw", "sc":
		return stored.Used + stored.Given + stored.Previous, nil
	}
	return math.Max(float64(spec.Burst), 1) - stored.Left, nil
}

// costOf returns what a job takes from a limit with a unit.
func costOf(fields map[string]string, unit string) float64 {
	if unit == "" {
		cost, _ := strconv.ParseInt(fields["hg_cost"], 10, 64)
		return float64(max(cost, 1))
	}
	for pair := range strings.SplitSeq(fields["hg_costs"], ";") {
		if of, n, ok := strings.Cut(pair, "="); ok && of == unit {
			cost, _ := strconv.ParseInt(n, 10, 64)
			return float64(cost)
		}
	}
	return 0
}
