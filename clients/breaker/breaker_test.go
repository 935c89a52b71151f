package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/breaker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errLost = clients.Unknown(errors.New("connection reset"))
	errDown = clients.Retryable(errors.New("connection refused"))
	errBusy = clients.Throttled(time.Second, errors.New("slow down"))
	errBad  = clients.Permanent(errors.New("no such thing"))
)

func newBreaker(t testing.TB, config breaker.Config) *breaker.Breaker {
	t.Helper()
	b, err := breaker.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// do makes a call that ends with err and reports whether it was made.
func do(t testing.TB, b *breaker.Breaker, key string, err error) (made bool, got error) {
	got = b.Do(t.Context(), key, func() error {
		made = true
		return err
	})
	return made, got
}

func TestNew(t *testing.T) {
	_, err := breaker.New(breaker.Config{Failures: -1, Pause: -1, MaxKeys: -1, Hold: 7})
	for _, field := range []string{"failures", "pause", "max keys", "hold"} {
		if err == nil || !strings.Contains(err.Error(), "breaker: "+field+": ") {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

// Which outcomes open a circuit, and which keep it from opening.
func TestEvidence(t *testing.T) {
	canceled := fmt.Errorf("call: %w", context.Canceled)
	tests := map[string]struct {
		outcomes []error
		want     breaker.State
	}{
		"retryable":                {[]error{errDown, errDown, errDown}, breaker.Open},
		"unknown":                  {[]error{errLost, errLost, errLost}, breaker.Open},
		"any other error":          {[]error{errors.New("x"), errors.New("x"), errors.New("x")}, breaker.Open},
		"both":                     {[]error{errLost, errDown, errLost}, breaker.Open},
		"the time was up":          {slices.Repeat([]error{context.DeadlineExceeded}, 3), breaker.Open},
		"too few":                  {[]error{errLost, errDown}, breaker.Closed},
		"one that worked":          {[]error{errDown, errDown, nil, errDown, errDown}, breaker.Closed},
		"throttled answers":        {[]error{errDown, errDown, errBusy, errDown, errDown}, breaker.Closed},
		"parked answers":           {[]error{errDown, errDown, clients.ParkUntil(time.Now(), nil), errDown, errDown}, breaker.Closed},
		"permanent is no evidence": {[]error{errDown, errDown, errBad, errDown}, breaker.Open},
		"permanent alone":          {slices.Repeat([]error{errBad}, 50), breaker.Closed},
		"throttled alone":          {slices.Repeat([]error{errBusy}, 50), breaker.Closed},
		"the worker ended":         {slices.Repeat([]error{canceled}, 50), breaker.Closed},
		"a breaker's refusal":      {slices.Repeat([]error{clients.Throttled(1, &breaker.DownError{})}, 50), breaker.Closed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBreaker(t, breaker.Config{Failures: 3})
			for i, outcome := range tt.outcomes {
				if made, got := do(t, b, "smtp", outcome); !made || got != outcome {
					t.Fatalf("call %d: made %v, %v", i, made, got)
				}
			}
			if got := b.State("smtp"); got != tt.want {
				t.Errorf("%s; want %s", got, tt.want)
			}
			if got := b.State("other"); got != breaker.Closed {
				t.Errorf("another key is %s", got)
			}
		})
	}
}

func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{Failures: 2, Pause: time.Minute})
		refused := func(after time.Duration) {
			t.Helper()
			made, err := do(t, b, "smtp", nil)
			throttled, is := errors.AsType[*clients.ThrottledError](err)
			if made || !is || throttled.RetryAfter() != after || throttled.WholeAccount() {
				t.Fatalf("made %v, %v; want a refusal for %v", made, err, after)
			}
		}
		state := func(want breaker.State) {
			t.Helper()
			if got := b.State("smtp"); got != want {
				t.Fatalf("%s; want %s", got, want)
			}
		}
		down := time.Now()
		do(t, b, "smtp", errDown)
		do(t, b, "smtp", errLost)
		state(breaker.Open)
		refused(time.Minute)
		time.Sleep(45 * time.Second)
		refused(15 * time.Second)
		_, err := do(t, b, "smtp", nil)
		if want := "smtp is down since " + down.UTC().Format(time.RFC3339) + " and was not called: connection reset"; err.Error() != want {
			t.Errorf("%q; want %q", err, want)
		}
		// After exactly the time that was said, a call goes. It fails.
		time.Sleep(15 * time.Second)
		state(breaker.HalfOpen)
		if made, _ := do(t, b, "smtp", errDown); !made {
			t.Fatal("it was not tried")
		}
		state(breaker.Open)
		refused(time.Minute)
		if list := b.Down(); len(list) != 1 || list[0] != (breaker.Status{
			Key: "smtp", State: breaker.Open, Since: down, Until: time.Now().Add(time.Minute), Last: "connection refused",
		}) {
			t.Errorf("%+v", list)
		}
		// A permanent failure settles nothing: the next call may try.
		time.Sleep(time.Minute)
		if made, _ := do(t, b, "smtp", errBad); !made {
			t.Fatal("it was not tried")
		}
		state(breaker.HalfOpen)
		if made, _ := do(t, b, "smtp", nil); !made {
			t.Fatal("it was not tried")
		}
		state(breaker.Closed)
		if got, want := b.Stats(), (breaker.Stats{Opened: 1, Refused: 4}); got != want {
			t.Errorf("%+v; want %+v", got, want)
		}
		// One more failure is the first again.
		do(t, b, "smtp", errDown)
		state(breaker.Closed)
	})
}

func TestOneProbeAtATime(t *testing.T) {
	for name, outcome := range map[string]error{"it works": nil, "throttled": errBusy, "still down": errDown} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(t, breaker.Config{Failures: 1, Pause: time.Minute})
				do(t, b, "smtp", errDown)
				time.Sleep(time.Minute)
				answer := make(chan error)
				var calls sync.WaitGroup
				made, refused := 0, 0
				var mu sync.Mutex
				for range 100 {
					calls.Go(func() {
						err := b.Do(t.Context(), "smtp", func() error {
							mu.Lock()
							made++
							mu.Unlock()
							return <-answer
						})
						if _, is := errors.AsType[*breaker.DownError](err); is {
							throttled, _ := errors.AsType[*clients.ThrottledError](err)
							if throttled.RetryAfter() != time.Second {
								t.Errorf("%v", throttled.RetryAfter())
							}
							mu.Lock()
							refused++
							mu.Unlock()
						}
					})
				}
				synctest.Wait()
				if made != 1 || refused != 99 {
					t.Errorf("%d made, %d refused", made, refused)
				}
				if got := b.Stats(); got.HalfOpen != 1 || got.Open != 0 {
					t.Errorf("%+v", got)
				}
				answer <- outcome
				calls.Wait()
				if made, _ := do(t, b, "smtp", nil); made != (outcome != errDown) {
					t.Errorf("the next call: made %v", made)
				}
			})
		})
	}
}

// Calls that began before the provider went down say nothing of it afterwards.
func TestLateAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{Failures: 1, Pause: time.Minute})
		answers := []chan error{make(chan error), make(chan error)}
		var calls sync.WaitGroup
		for _, answer := range answers {
			calls.Go(func() { b.Do(t.Context(), "smtp", func() error { return <-answer }) })
		}
		synctest.Wait()
		do(t, b, "smtp", errDown)
		answers[0] <- nil
		synctest.Wait()
		if got := b.State("smtp"); got != breaker.Open {
			t.Errorf("%s after a late success", got)
		}
		time.Sleep(time.Minute)
		answers[1] <- errDown
		calls.Wait()
		if got := b.State("smtp"); got != breaker.HalfOpen {
			t.Errorf("%s after a late failure", got)
		}
	})
}

// A try that ends in no way at all must not be waited for.
func TestProbeWithoutOutcome(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for name, probe := range map[string]func(b *breaker.Breaker){
		"panic": func(b *breaker.Breaker) {
			defer func() { recover() }()
			b.Do(t.Context(), "smtp", func() error { panic("x") })
		},
		"goroutine ended": func(b *breaker.Breaker) {
			var call sync.WaitGroup
			call.Go(func() { b.Do(t.Context(), "smtp", func() error { runtime.Goexit(); return nil }) })
			call.Wait()
		},
		"worker ended": func(b *breaker.Breaker) {
			b.Do(ended, "smtp", func() error { return clients.Unknown(errors.New("context canceled")) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(t, breaker.Config{Failures: 1, Pause: time.Minute})
				do(t, b, "smtp", errDown)
				time.Sleep(time.Minute)
				probe(b)
				if made, err := do(t, b, "smtp", nil); !made || err != nil {
					t.Errorf("the next call: made %v, %v", made, err)
				}
			})
		})
	}
}

func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusal := func(hold breaker.Hold) error {
			b := newBreaker(t, breaker.Config{Failures: 1, Pause: time.Minute, Hold: hold})
			do(t, b, "smtp", errDown)
			_, err := do(t, b, "smtp", nil)
			return err
		}
		account, is := errors.AsType[*clients.ThrottledError](refusal(breaker.HoldAccount))
		if !is || !account.WholeAccount() || account.RetryAfter() != time.Minute {
			t.Errorf("%+v", account)
		}
		job, is := errors.AsType[*clients.ParkedError](refusal(breaker.HoldJob))
		if !is || !job.ParkUntil().Equal(time.Now().Add(time.Minute)) {
			t.Errorf("%+v", job)
		}
	})
}

// Keys are a stranger's choice.
func TestKeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{Failures: 1, Pause: time.Minute, MaxKeys: 10})
		for i := range 100 {
			if made, _ := do(t, b, fmt.Sprint(i), errDown); !made {
				t.Fatalf("%d was not called", i)
			}
		}
		if got := len(b.Down()); got != 10 {
			t.Errorf("%d circuits", got)
		}
		// Long after, those that nobody asked for any more make room.
		time.Sleep(time.Hour)
		do(t, b, "new", errDown)
		if got := b.State("new"); got != breaker.Open {
			t.Errorf("new: %s", got)
		}
		if made, _ := do(t, b, "", errDown); !made {
			t.Error("no key")
		}
		if made, _ := do(t, b, "", nil); !made {
			t.Error("no key, again")
		}
	})
}

func TestGuard(t *testing.T) {
	b := newBreaker(t, breaker.Config{Failures: 1})
	calls := 0
	send := breaker.GuardResult(b, func(call clients.Call, p string) string { return call.Tenant + "/" + p },
		func(_ context.Context, _ clients.Call, p string) (int, error) {
			calls++
			if p == "bad" {
				return 0, errDown
			}
			return 7, nil
		})
	if n, err := send(t.Context(), clients.Call{Tenant: "a"}, "good"); n != 7 || err != nil {
		t.Error(n, err)
	}
	send(t.Context(), clients.Call{Tenant: "a"}, "bad")
	if n, err := send(t.Context(), clients.Call{Tenant: "a"}, "bad"); n != 0 || !strings.Contains(fmt.Sprint(err), "a/bad is down") {
		t.Error(n, err)
	}
	if _, err := send(t.Context(), clients.Call{Tenant: "b"}, "bad"); !errors.Is(err, errDown) || calls != 3 {
		t.Error(calls, err)
	}
}

func TestNone(t *testing.T) {
	var b *breaker.Breaker
	for range 10 {
		if made, _ := do(t, b, "k", errDown); !made {
			t.Error("a call was not made without a breaker")
		}
	}
}

// Under load, the map and the machines agree, and nothing is left over.
func TestConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{Failures: 3, Pause: time.Microsecond})
		var callers sync.WaitGroup
		for i := range 16 {
			callers.Go(func() {
				for n := range 2000 {
					var err error
					if (n/100+i)%2 == 0 {
						err = errDown
					}
					b.Do(t.Context(), fmt.Sprint(n%3), func() error { return err })
					if n%100 == 0 {
						b.Down()
						b.Stats()
					}
				}
			})
		}
		callers.Wait()
		for key := range 3 {
			for b.Do(t.Context(), fmt.Sprint(key), func() error { return nil }) != nil {
				time.Sleep(time.Microsecond)
			}
		}
		if got := b.Stats(); got.Open != 0 || got.HalfOpen != 0 {
			t.Errorf("%+v", got)
		}
	})
}

func ExampleGuard() {
	b, err := breaker.New(breaker.Config{Failures: 2})
	if err != nil {
		panic(err)
	}
	send := breaker.Guard(b, func(clients.Call, string) string { return "sms" },
		func(context.Context, clients.Call, string) error {
			return clients.Retryable(errors.New("connection refused"))
		})
	for range 3 {
		err := send(context.Background(), clients.Call{}, "hello")
		_, down := errors.AsType[*breaker.DownError](err)
		fmt.Println(down)
	}
	// Output:
	// false
	// false
	// true
}

func BenchmarkDo(b *testing.B) {
	circuits := newBreaker(b, breaker.Config{})
	b.ReportAllocs()
	for b.Loop() {
		circuits.Do(b.Context(), "smtp", func() error { return nil })
	}
}
