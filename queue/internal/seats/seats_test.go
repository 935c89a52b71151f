package seats

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// network is what lies between a worker and the seats. Commands get lost, or their replies, or they come late.
type network struct {
	to    redis.UniversalClient
	away  *atomic.Int32 // the seat that nobody reaches; 3: none
	worst float64       // part of the commands that go wrong
	from  uint64

	mu     sync.Mutex
	random [3]*rand.Rand // of each seat
	late   [][]any
}

var errLost = errors.New("lost")

func (n *network) on(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	_, which, asked := strings.Cut(fmt.Sprint(cmd.Args()...), "seat-")
	if !asked { // the connection
		return next(ctx, cmd)
	}
	seat := int(which[0] - '0')
	n.mu.Lock()
	if n.random[seat] == nil {
		n.random[seat] = rand.New(rand.NewPCG(n.from, uint64(seat)))
	}
	luck := n.random[seat].Float64() / n.worst
	n.mu.Unlock()
	switch {
	case int(n.away.Load()) == seat || luck < 0.3:
	case luck < 0.6:
		n.mu.Lock()
		defer n.mu.Unlock()
		n.late = append(n.late, cmd.Args())
	case luck < 1: // the reply is lost
		_ = next(ctx, cmd)
	default:
		return next(ctx, cmd)
	}
	return errLost
}

// settled waits until all seats have answered: what comes next is then the same in each run.
func settled(r *Register) {
	for _, s := range r.seats {
		for s.busy.Load() {
			runtime.Gosched()
		}
	}
}

// arrive lets commands come that are late.
func (n *network) arrive(t *rapid.T) {
	for _, args := range n.late {
		if err := n.to.Do(context.Background(), args...).Err(); err != nil && !redis.HasErrorPrefix(err, "NOSCRIPT") {
			t.Fatal(err)
		}
	}
	n.late = nil
}

// TestOneAfterAnother: whoever stores a text has read all that was stored before it, whatever gets lost, comes late, or
// is away.
func TestOneAfterAnother(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client()
	cases, stored := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		cases++
		queue, away := fmt.Sprint("case", cases), new(atomic.Int32)
		away.Store(3)
		type worker struct {
			*Register
			*network
			text string
			may  bool // store
		}
		var workers []*worker
		worst := rapid.SampledFrom([]float64{0.01, 0.1, 0.4}).Draw(t, "worst")
		for i := range 3 {
			n := &network{to: client, away: away, worst: worst, from: rapid.Uint64().Draw(t, "from")}
			its := redis.NewClient(&redis.Options{Addr: client.Options().Addr})
			defer its.Close()
			its.AddHook(redistest.OnCommand(n.on))
			r := &Register{client: its, caller: fmt.Sprint("w", i), silent: Silent{}}
			for j := range 3 {
				r.seats = append(r.seats, seat{queue, fmt.Sprintf("headgate:{%s}:seat-%d", queue, j), new(atomic.Bool), new(atomic.Bool)})
			}
			workers = append(workers, &worker{Register: r, network: n})
		}
		last, number := "", uint64(0) // what somebody read or stored last
		for step := range 60 {
			w := workers[rapid.IntRange(0, 2).Draw(t, "worker")]
			switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
			case what == 0:
				away.Store(int32(rapid.IntRange(0, 3).Draw(t, "away")))
			case what == 1:
				w.arrive(t)
			case !w.may:
				text, of, err := w.Read(t.Context())
				if settled(w.Register); err != nil {
					continue
				}
				if w.text, w.may = text, true; !strings.HasPrefix(text, last) || of < number {
					t.Fatalf("%s reads %q, number %d; %q, number %d, was stored", w.caller, text, of, last, number)
				}
				last, number = text, of
			default:
				text := fmt.Sprintf("%s %d", w.text, step)
				of, err := w.Store(t.Context(), 0, text)
				if settled(w.Register); err != nil {
					w.may = false
					continue
				}
				if !strings.HasPrefix(text, last) || of <= number {
					t.Fatalf("%s stores %q, number %d, over %q, number %d", w.caller, text, of, last, number)
				}
				w.text, last, number = text, text, of
				stored++
			}
		}
	})
	if stored < 5*cases {
		t.Errorf("%d texts were stored in %d cases", stored, cases)
	}
}

// TestLateText: a text that comes after a newer one of its term is not stored.
func TestLateText(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client()
	r := New(client, "w", "late", "headgate:{late}:ledger")
	ctx := t.Context()
	if _, err := r.begin(ctx); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"1 first", "2 second", "2 second", "1 first"} {
		if a := r.ask(ctx, r.seats[0], r.term, text, ""); a.err != nil || !a.ok {
			t.Fatalf("%q: %+v", text, a)
		}
	}
	if text, _, err := r.Read(ctx); err != nil || text != "second" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestForgottenTerm: a seat that was set back agrees to a term for a second time, but only to one worker.
func TestForgottenTerm(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Shared(t).Client(), t.Context()
	one, two := New(client, "one", "forgotten", "headgate:{forgotten}:ledger"), New(client, "two", "forgotten", "headgate:{forgotten}:ledger")
	for _, r := range []*Register{one, two} {
		if _, _, err := r.Read(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Store(ctx, 0, "text"); err != nil || r.term != 1 {
			t.Fatalf("term %d, %v", r.term, err)
		}
		if r == one {
			client.Del(ctx, one.seats[0].key)
		}
	}
	if _, err := one.Store(ctx, 0, "another"); !errors.Is(err, ErrTaken) {
		t.Errorf("%v; want %v", err, ErrTaken)
	}
	if _, err := two.Store(ctx, 0, "another"); err != nil {
		t.Error(err)
	}
}

// TestKept: a text expires some time after its last change, and with Expire.
func TestKept(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Shared(t).Client(), t.Context()
	const kept = time.Hour
	r := New(client, "w", "kept", "headgate:{kept}:ledger")
	left := func() time.Duration { return client.PTTL(ctx, r.seats[0].key).Val() }
	for _, keep := range []time.Duration{kept / 3, kept, kept / 3} {
		before := left()
		r.Keep(keep)
		if _, err := r.Store(ctx, 7, "text"); err != nil {
			t.Fatal(err)
		}
		if l, want := left(), max(keep, before); l > want || l < want-kept/10 {
			t.Errorf("after a change it expires in %v; want %v", l, want)
		}
	}
	if err := Expire(ctx, client, "kept", "headgate:{kept}:ledger", time.Minute); err != nil || left() > time.Minute {
		t.Errorf("it expires in %v, %v", left(), err)
	}
}

// TestKeepBesideLateSeats: Keep may be called while a seat still has to answer the last question. The race detector judges.
func TestKeepBesideLateSeats(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	// All seats agree, without a connection: nothing that questions share there orders them, so the race detector sees
	// what a late one shares with the next.
	client.AddHook(redistest.OnCommand(func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
		cmd.(interface{ SetVal(any) }).SetVal([]any{int64(1), int64(1), int64(1), "1 text"})
		return nil
	}))
	r := &Register{client: client, caller: "w", silent: Silent{}}
	for _, tag := range []string{"late-one", "late-two", "late-three"} {
		r.seats = append(r.seats, seat{tag, "headgate:{" + tag + "}:ledger", new(atomic.Bool), new(atomic.Bool)})
	}
	for i := range 100 {
		r.Keep(time.Hour + time.Duration(i)*time.Minute)
		if err := r.most(t.Context(), 1, "1 text", nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDamaged: a text that is none of a register is an error that says what to do, and stays.
func TestDamaged(t *testing.T) {
	t.Parallel()
	client, ctx := redistest.Shared(t).Client(), t.Context()
	r := New(client, "w", "damaged", "headgate:{damaged}:ledger")
	const want = "headgate:{damaged}:ledger is damaged: delete it, and what is shared there counts as lost"
	key := r.seats[0].key
	for _, text := range []string{"", "7 no text of a register", "1 w 1", "99999999999999999999 w 1 7 text", "1 w 99999999999999999999 7 text", "1 w 1 99999999999999999999 text", "1 w 1 text"} {
		client.Set(ctx, key, text, 0)
		_, _, reads := r.Read(ctx)
		_, stores := r.Store(ctx, 0, "new")
		if keys := r.Damaged(); len(keys) != 1 || keys[0] != key {
			t.Errorf("%q: damaged are %v", text, keys)
		}
		for _, err := range []error{reads, stores} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v; want %q", text, err, want)
			}
		}
		if now := client.Get(ctx, key).Val(); now != text {
			t.Errorf("%q is %q now", text, now)
		}
	}
	client.Del(ctx, key)
	if _, _, err := r.Read(ctx); err != nil || r.Damaged() != nil {
		t.Errorf("when it is gone: %v, damaged are %v", err, r.Damaged())
	}
	client.LPush(ctx, key, "a list")
	if _, _, err := r.Read(ctx); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a list: %v; want %q", err, want)
	}
	if n := client.LLen(ctx, key).Val(); n != 1 {
		t.Error("the list is gone")
	}
}

// TestSeatsOfACluster: a text of a Cluster can be read and replaced while one node does not answer, or has lost what it had.
func TestSeatsOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
	client, ctx := cluster.Client(), t.Context()
	for _, queue := range []string{"q", "email", "a.queue-with_a-long-name", "*spend"} {
		owners := map[*redistest.Server]bool{}
		for _, tag := range Tags(client, queue) {
			if got := cluster.Slot("{" + tag + "}"); got != slot(tag) {
				t.Errorf("slot of %s: %d; Redis says %d", tag, slot(tag), got)
			}
			owners[cluster.Owner(slot(tag))] = true
		}
		if len(owners) != 3 {
			t.Errorf("the seats of %s are on %d nodes", queue, len(owners))
		}
	}
	one, two := New(client, "one", "q", "headgate:{q}:ledger"), New(client, "two", "q", "headgate:{q}:ledger")
	step := func(r *Register, text, next string) {
		t.Helper()
		if got, _, err := r.Read(ctx); err != nil || got != text {
			t.Fatalf("%q, %v; want %q", got, err, text)
		}
		if _, err := r.Store(ctx, 0, next); err != nil {
			t.Fatal(err)
		}
	}
	step(one, "", "a")
	step(two, "a", "b")
	if _, err := one.Store(ctx, 0, "c"); !errors.Is(err, ErrTaken) {
		t.Fatalf("%v; want %v", err, ErrTaken)
	}
	for i, tag := range Tags(client, "q") {
		away := cluster.Owner(slot(tag))
		away.Pause()
		step(one, strings.Repeat("b", i+1), "x")
		step(two, "x", strings.Repeat("b", i+2))
		away.Resume()
		if err := client.Del(ctx, two.seats[i].key).Err(); err != nil {
			t.Fatal(err)
		}
	}
	step(one, "bbbb", "end")
}
