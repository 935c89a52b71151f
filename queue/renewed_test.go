package queue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/store"
)

// TestRenewed: a reading is shared for its time. Until it is too old, those who ask have the
// next one read in the background and wait for nothing; then they wait for a new one.
func TestRenewed(t *testing.T) {
	const takes, late = 100 * time.Millisecond, 10 * time.Second // shared for 5 s
	synctest.Test(t, func(t *testing.T) {
		r, reads, rests := newRenewed[int](), 0, 0
		var fails error
		read := func(_ context.Context, rest func(time.Duration)) (*int, error) {
			reads++
			n := reads
			time.Sleep(takes)
			began := time.Now()
			if rest(time.Minute); time.Since(began) > 0 {
				rests++
			}
			return &n, fails
		}
		get := func() (*int, bool, error) {
			done, err := take(t.Context(), r.turn)
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			return r.get(t.Context(), late, read)
		}
		ask := func(want, readings int, wantWait bool) {
			t.Helper()
			began := time.Now()
			got, fresh, err := get()
			waited := time.Since(began)
			synctest.Wait() // what it begins in the background has begun
			if err != nil || *got != want || fresh != wantWait || (waited > 0) != wantWait || reads != readings {
				t.Fatalf("%d, fresh %t, after %v and %d readings, %v; want %d, %t, after %d", *got, fresh, waited, reads, err, want, wantWait, readings)
			}
		}
		ask(1, 1, true)
		time.Sleep(5*time.Second - 2*takes)
		ask(1, 1, false)
		time.Sleep(2 * takes)
		ask(1, 2, false) // and the next one is begun
		ask(1, 2, false)
		time.Sleep(time.Minute) // it takes longer than a reading may be late
		ask(1, 2, false)
		time.Sleep(2 * takes)
		ask(2, 2, false)
		if rests != 1 {
			t.Errorf("%d readings rested; want the one in the background", rests)
		}
		time.Sleep(5*time.Second - 2*takes)
		ask(2, 2, false)
		time.Sleep(late + 2*takes)
		ask(3, 3, true) // the last one is too old
		// A failure in the background is for those to find who come when the last is too old.
		time.Sleep(6 * time.Second)
		fails = errors.New("redis is away")
		ask(3, 4, false)
		time.Sleep(time.Minute + 2*takes)
		if _, _, err := get(); !errors.Is(err, fails) || reads != 5 {
			t.Errorf("%v after %d readings", err, reads)
		}
	})
}

// gated holds up what reads all lanes.
type gated struct {
	held atomic.Int64
	open chan struct{}
}

func (*gated) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (g *gated) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (g *gated) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Name() == "sscan" }) {
			g.held.Add(1)
			select {
			case <-g.open:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return next(ctx, cmds)
	}
}

// TestNobodyWaitsForManyLanes: while the lanes are read anew, who asks is answered by what was
// read before, and of this moment what is said of the job itself.
func TestNobodyWaitsForManyLanes(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(100), sharedBy(1000)), nil)
	r.served(t)
	var id string
	for i := range 21 {
		id = r.add(t, func(job *Job) { job.Tenant, job.Key = "last", fmt.Sprint(i) })
	}
	for i := range store.MaxKeys {
		r.add(t, func(job *Job) { job.Tenant = fmt.Sprint("tenant-", i) })
	}
	client := redis.NewClient(r.server.Client().Options())
	t.Cleanup(func() { client.Close() })
	gate := &gated{open: make(chan struct{})}
	close(gate.open)
	client.AddHook(gate)
	inspector := NewInspector(client)
	explain := func() Explanation {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		e, err := inspector.Explain(ctx, r.queue, id)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	before := explain()
	if before.Position != 20 || before.At.IsZero() || before.Sure != Steady {
		t.Fatalf("%+v", before)
	}
	gate.open = make(chan struct{})
	release := sync.OnceFunc(func() { close(gate.open) })
	defer release()
	known := &inspector.watch(r.queue).forecast
	first := known.last
	known.until = time.Now() // it has been shared for long enough
	if _, err := Apply(t.Context(), client, r.queue, Cancel, Filter{ID: "last:0"}, Operator{"ann", "a test"}, nil); err != nil {
		t.Fatal(err)
	}
	until(t, "a new reading has begun", func() bool { return explain().Position == 19 && gate.held.Load() == 2 })
	after := explain()
	if after.Position != 19 || after.Waiting != 20 || !after.Now.After(before.Now) || gate.held.Load() != 2 {
		t.Errorf("%+v, and %d readings", after, gate.held.Load())
	}
	release()
	until(t, "the new reading is used", func() bool {
		explain()
		done, err := take(t.Context(), known.turn)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		return known.last != first
	})
}

// TestVeryManyLanesAreDrawn: a forecast of very many lanes reads some that are drawn by
// chance, and they stand for all.
func TestVeryManyLanesAreDrawn(t *testing.T) {
	t.Parallel()
	const all = mostLanes + 1000
	client := manyTenants(t, all)
	drawn := map[string]bool{}
	for range 60 {
		f, err := readForecast(t.Context(), client, "q", atOnce)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.lanes) != enoughLanes || f.part != float64(enoughLanes)/all {
			t.Fatalf("%d lanes, which are %v of %d", len(f.lanes), f.part, all)
		}
		for i := range f.lanes {
			drawn[f.lanes[i].name] = true
		}
	}
	// One that is drawn for a sixth each time is left out of all 60 in one of 50,000 cases.
	if len(drawn) < all*9/10 {
		t.Errorf("%d of %d lanes were drawn", len(drawn), all)
	}
}
