package throttle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/coalesce"
	"github.com/headgate/headgate/internal/test/redistest"
)

// counter counts the round trips of a client, and can hold them up.
type roundTrips struct {
	mu    sync.Mutex
	count int
	held  chan struct{} // nil: nothing is held
}

func (h *roundTrips) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *roundTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *roundTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.mu.Lock()
		held := h.held
		if cmd.Name() == "evalsha" {
			h.count++
		}
		h.mu.Unlock()
		if held != nil {
			<-held
		}
		return next(ctx, cmd)
	}
}

func (h *roundTrips) hold() (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count, h.held = 0, make(chan struct{})
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		close(h.held)
		h.held = nil
	}
}

func (h *roundTrips) counted() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// stand waits until n calls are in line.
func stand(t *testing.T, q *coalesce.Group[*call], n int) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(ms) {
		_, waiting := q.Pending()
		if waiting == n {
			return
		}
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("%d calls wait, want %d", waiting, n)
		}
	}
}

func hooked(t *testing.T, limits ...Limit) (*Limiter, *roundTrips) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr()})
	t.Cleanup(func() { client.Close() })
	trips := &roundTrips{}
	client.AddHook(trips)
	l, err := New(client, fmt.Sprintf("line:%d", time.Now().UnixNano()), limits...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Take(t.Context(), 1, "warm"); err != nil { // the script is known from here on
		t.Fatal(err)
	}
	return l, trips
}

// TestCallsShareRoundTrips: while two are under way all others gather and go
// together, and each has its own answer.
func TestCallsShareRoundTrips(t *testing.T) {
	const callers = 64
	for name, limits := range map[string][]Limit{
		"one limit": {bucket("1/h", 40)}, "layers": {bucket("1/h", 40), window("1000/h", nil)}, "reserved": {leaky("1/h", 40)},
	} {
		t.Run(name, func(t *testing.T) {
			l, trips := hooked(t, limits...)
			q := l.taking
			release := trips.hold()
			allowed := map[bool]int{}
			var lock sync.Mutex
			var all sync.WaitGroup
			if name == "reserved" {
				q = l.placing
			}
			for i := range callers {
				all.Go(func() {
					var d Decision
					var err error
					if name == "reserved" {
						d, err = decision(l.Reserve(t.Context(), 1, 1000*time.Hour, "hot"))
					} else {
						d, err = l.Take(t.Context(), 1, "hot")
					}
					if err != nil {
						t.Error(err)
					}
					lock.Lock()
					allowed[d.Allowed]++
					lock.Unlock()
				})
				if i == coalesce.MaxFlights-1 {
					for trips.counted() < coalesce.MaxFlights {
						time.Sleep(ms)
					}
				}
			}
			stand(t, q, callers-coalesce.MaxFlights)
			release()
			all.Wait()
			if allowed[true] != 40 || allowed[false] != callers-40 {
				t.Errorf("%v; want 40 allowed", allowed)
			}
			if got := trips.counted(); got != coalesce.MaxFlights+1 {
				t.Errorf("%d round trips for %d calls, want %d", got, callers, coalesce.MaxFlights+1)
			}
		})
	}
}

// TestReleasesShareRoundTrips: so do calls that end, and each gives back its own permit.
func TestReleasesShareRoundTrips(t *testing.T) {
	const callers = 64
	l, trips := hooked(t, bucket("1000/s", 1000), inFlightOf(100, time.Hour))
	var held []*Reservation
	for i := range callers {
		held = append(held, hold(t, l, fmt.Sprint("call", i%3)))
	}
	stays, left := hold(t, l, "call0"), hold(t, l, "call1")
	letGo := trips.hold()
	var all sync.WaitGroup
	for i, r := range held {
		all.Go(func() { release(t, r) })
		if i == coalesce.MaxFlights-1 {
			for trips.counted() < coalesce.MaxFlights {
				time.Sleep(ms)
			}
		}
	}
	stand(t, l.ending, callers-coalesce.MaxFlights)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if err := left.Release(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v; want the error of its context", err)
	}
	stand(t, l.ending, callers-coalesce.MaxFlights+1) // its permit comes back all the same
	letGo()
	all.Wait()
	for i, want := range []int64{1, 0, 0} {
		if n := l.client.ZCard(t.Context(), l.bucket(l.limits[1], fmt.Sprint("call", i))).Val(); n != want {
			t.Errorf("%d permits of call%d are held, want %d", n, i, want)
		}
	}
	if got := trips.counted(); got != coalesce.MaxFlights+1 {
		t.Errorf("%d round trips for %d calls, want %d", got, callers, coalesce.MaxFlights+1)
	}
	release(t, stays)
}

// TestReleaseOutlivesItsContext: a permit comes back although its caller's context ends before there is a connection.
func TestReleaseOutlivesItsContext(t *testing.T) {
	server := redistest.Shared(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 1})
	defer client.Close()
	l, err := New(client, fmt.Sprintf("outlives:%d", time.Now().UnixNano()), inFlightOf(3, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	r := hold(t, l, "k")
	only := client.Conn()
	if err := only.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*ms)
	defer cancel()
	if err := r.Release(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v; want that its time is over", err)
	}
	only.Close()
	for began := time.Now(); server.Client().ZCard(t.Context(), r.call.buckets[0]).Val() > 0; time.Sleep(ms) {
		if time.Since(began) > 10*time.Second {
			t.Fatal("the permit is held")
		}
	}
}

// TestLoneCallsGoAtOnce: one after the other each call is a round trip, and no
// goroutine or timer is left of it.
func TestLoneCallsGoAtOnce(t *testing.T) {
	l, trips := hooked(t, bucket("1000/s", 1000))
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	before := trips.counted()
	for range 20 {
		if _, err := l.Take(t.Context(), 1, "k"); err != nil {
			t.Fatal(err)
		}
	}
	if got := trips.counted() - before; got != 20 {
		t.Errorf("%d round trips for 20 calls", got)
	}
}

// TestCallersLeaveTheLine: one whose context ends leaves at once; if its call
// was not sent yet it never is.
func TestCallersLeaveTheLine(t *testing.T) {
	l, trips := hooked(t, bucket("1/h", 100))
	release := trips.hold()
	answers := make(chan error, 8)
	take := func(ctx context.Context) {
		_, err := l.Take(ctx, 1, "k")
		answers <- err
	}
	leaving, leave := context.WithCancel(t.Context())
	for i := range coalesce.MaxFlights {
		go take(t.Context())
		for trips.counted() <= i {
			time.Sleep(ms)
		}
	}
	go take(t.Context())
	go take(leaving)
	stand(t, l.taking, 2)
	leave()
	if err := <-answers; !errors.Is(err, context.Canceled) {
		t.Fatalf("%v; want the context's error", err)
	}
	stand(t, l.taking, 1)
	release()
	for range coalesce.MaxFlights + 1 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if d, err := l.Peek(t.Context(), 1, "k"); err != nil || d.Remaining != 100-coalesce.MaxFlights-1 {
		t.Errorf("%+v, %v; want %d taken", d, err, coalesce.MaxFlights+1)
	}
}

// TestSharedAnswersAreTheSame: calls that are asked together are answered as if
// they had come one after the other.
func TestSharedAnswersAreTheSame(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, client redis.UniversalClient) {
		rapid.Check(t, func(rt *rapid.T) {
			all := []Limit{bucket("6/min", 6), leaky("10/min", 5), window("8/30s", nil), logged("9/20s"), counted("7/20s"), inFlightOf(6, time.Minute)}
			from := rapid.IntRange(0, len(all)-1).Draw(rt, "from")
			limits := all[from:rapid.IntRange(from+1, len(all)).Draw(rt, "to")]
			together, alone := newClocked(t, client, limits...), newClocked(t, client, limits...)
			form, mode := police, modeTake
			if rapid.Bool().Draw(rt, "shaping") {
				form, mode = shape, modeReserve
			}
			for range 3 {
				together.now = together.now.Add(time.Duration(rapid.Int64Range(0, 20e6).Draw(rt, "after")) * time.Microsecond)
				alone.now = together.now
				var one, many []*call
				for range rapid.IntRange(1, 12).Draw(rt, "calls") {
					n, key := rapid.Int64Range(1, 4).Draw(rt, "n"), rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "key")
					within := time.Duration(rapid.SampledFrom([]int64{0, 10, 100}).Draw(rt, "within")) * time.Second
					for _, side := range []struct {
						c     *clocked
						calls *[]*call
					}{{together, &many}, {alone, &one}} {
						asked, err := side.c.ask(form, n, within, []string{key})
						if err != nil {
							rt.Fatal(err)
						}
						*side.calls = append(*side.calls, asked)
					}
				}
				if err := together.send(t.Context(), mode, many); err != nil {
					rt.Fatal(err)
				}
				for i, c := range one {
					if err := alone.send(t.Context(), mode, []*call{c}); err != nil {
						rt.Fatal(err)
					}
					if many[i].decision != c.decision {
						rt.Fatalf("call %d of %d: together %+v, alone %+v", i, len(one), many[i].decision, c.decision)
					}
				}
			}
		})
	})
}
