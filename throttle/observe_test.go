package throttle

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

// observed is a limiter whose observations are kept.
type observed struct {
	*Limiter
	t    *testing.T
	seen []Observation
}

func newObserved(t *testing.T, client redis.UniversalClient, limits ...Limit) *observed {
	t.Helper()
	o := &observed{t: t}
	o.Limiter = newClocked(t, client, limits...).WithObserver(func(seen Observation) { o.seen = append(o.seen, seen) })
	return o
}

// one returns the only observation since the last call.
func (o *observed) one() Observation {
	o.t.Helper()
	if len(o.seen) != 1 {
		o.t.Fatalf("%d observations: %+v; want one", len(o.seen), o.seen)
	}
	seen := o.seen[0]
	o.seen = nil
	if seen.Took <= 0 || seen.Err == nil && seen.Decision.Limit == "" {
		o.t.Errorf("an observation without an answer: %+v", seen)
	}
	return seen
}

// TestObserver: each call is observed once, however many questions it takes, with what its caller got.
func TestObserver(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		o := newObserved(t, client, bucket("1/h", 2), leaky("10/s", 0))
		for i := range 3 {
			d, err := o.Take(t.Context(), 1, "k")
			if seen := o.one(); err != nil || d.Allowed != (i < 1) || seen.Decision != d || seen.Waited != 0 || !slices.Equal(seen.Limits, []string{"tb", "lb"}) {
				t.Errorf("call %d: %+v, %v; observed %+v", i, d, err, seen)
			}
		}
		r, err := o.Reserve(t.Context(), 1, time.Second, "k")
		if seen := o.one(); err != nil || !r.Allowed || seen.Decision != r.Decision || seen.Waited != r.Delay || r.Delay == 0 {
			t.Errorf("reserved %+v, %v; observed %+v", r, err, seen)
		}
		r, err = o.Reserve(t.Context(), 1, time.Second, "k")
		if seen := o.one(); err != nil || r.Allowed || seen.Decision != r.Decision || seen.Waited != 0 {
			t.Errorf("refused %+v, %v; observed %+v", r, err, seen)
		}

		// Not about the limiter.
		if _, err := o.Peek(t.Context(), 1, "k"); err != nil {
			t.Fatal(err)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		for _, ask := range []func() error{
			func() error { _, err := o.Take(t.Context(), 0, "k"); return err },
			func() error { _, err := o.Take(t.Context(), 3, "k"); return err },
			func() error { _, err := o.Reserve(t.Context(), 1, 0, "k", "k", "k"); return err },
			func() error { _, err := o.Wait(t.Context(), 3, "k"); return err },
			func() error { _, err := o.Take(gone, 1, "k"); return err },
		} {
			if err := ask(); err == nil || len(o.seen) > 0 {
				t.Errorf("%v, and observed %+v", err, o.seen)
			}
		}
	})
}

// TestObserverOfWait: the time of a call is divided into that of the answers and that until its slot.
func TestObserverOfWait(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		o := newObserved(t, client, leaky("20/s", 0))
		o.Limiter = o.WithClock(nil)
		calls := 0
		for waited := false; !waited; { // on a machine that stalls, a call comes after its slot
			began := time.Now()
			r, err := o.Wait(t.Context(), 1, "k")
			took := time.Since(began)
			calls++
			if seen := o.one(); err != nil || calls == 100 || seen.Decision != r.Decision || seen.Waited < r.Delay || seen.Waited+seen.Took > took {
				t.Fatalf("call %d took %v: %+v, %v; observed %+v", calls, took, r, err, seen)
			}
			waited = r.Delay > 0
		}
		if _, err := o.Reserve(t.Context(), 1000, time.Hour, "k"); err != nil {
			t.Fatal(err)
		}
		o.seen = nil
		short, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := o.Wait(short, 1, "k")
		refused, ok := errors.AsType[*RefusedError](err)
		if seen := o.one(); !ok || seen.Err != nil || seen.Decision != refused.Decision || seen.Waited != 0 {
			t.Errorf("%v; observed %+v", err, seen)
		}
	})
}

// TestObserverOfBlocksAndShards: what they ask within is not observed. What remains is that of the limit, and not known of a
// call that a block had permits for.
func TestObserverOfBlocksAndShards(t *testing.T) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		o := newObserved(t, client, bucket("1/h", 10))
		blocks, err := NewBlocks(o.Limiter, 4, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 12 {
			d, err := blocks.Take(t.Context(), 1, "k")
			local := slices.Contains([]int{1, 2, 3, 5, 6, 7, 11}, i) // from a block, or refused before
			seen := o.one()
			if err != nil || d.Allowed != (i < 10) || d.Local != local || d.Quota != 10 || seen.Decision.Allowed != d.Allowed || seen.Decision.Local != local {
				t.Errorf("call %d: %+v, %v; observed %+v", i, d, err, seen)
			}
			quota, left := int64(10), []int64{6, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0}[i]
			if local && d.Allowed {
				quota, left = 0, d.Remaining
			}
			if seen.Decision.Quota != quota || seen.Decision.Remaining != left {
				t.Errorf("call %d: %d of %d permits were observed; want %d of %d", i, seen.Decision.Remaining, seen.Decision.Quota, left, quota)
			}
		}
		if err := blocks.Close(t.Context()); err != nil || len(o.seen) > 0 {
			t.Errorf("closed: %v; observed %+v", err, o.seen)
		}

		limit := bucket("1/h", 4)
		limit.Shards = 2
		o = newObserved(t, client, limit)
		for i := range 7 {
			if i == 6 {
				o.shards[1].short[police].refusals.Store(nil) // so that this one is asked
			}
			d, err := o.Take(t.Context(), 1, "k")
			if seen := o.one(); err != nil || d.Allowed != (i < 4) || d.Local != (i == 5) || seen.Decision != d {
				t.Errorf("call %d: %+v, %v; observed %+v", i, d, err, seen)
			}
		}
		some, err := o.Only("tb")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := some.Reserve(t.Context(), 1, 0, "k"); err != nil {
			t.Fatal(err)
		}
		o.one()
	})
}

// TestObserverWithoutRedis: it sees the error.
func TestObserverWithoutRedis(t *testing.T) {
	server := redistest.Start(t)
	o := newObserved(t, server.Client(), bucket("1/h", 2))
	server.Kill()
	for _, ask := range []func() error{
		func() error { _, err := o.Take(t.Context(), 1, "k"); return err },
		func() error { _, err := o.Reserve(t.Context(), 1, 0, "k"); return err },
		func() error { _, err := o.Wait(t.Context(), 1, "k"); return err },
	} {
		err := ask()
		if seen := o.one(); err == nil || !errors.Is(seen.Err, err) || seen.Decision != (Decision{}) {
			t.Errorf("%v; observed %+v", err, seen)
		}
	}
}
