package pacer

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Main()
	m.Run()
}

func TestJudge(t *testing.T) {
	for _, test := range []struct {
		late    time.Duration
		wrong   int
		certain bool
		want    outcome
	}{
		{0, 0, false, kept}, {Bound + 1, 0, false, kept}, {Starved, 0, false, kept}, {Starved + 1, 0, false, uncounted},
		{0, 1, false, broken}, {Bound, 1, false, broken}, {Bound + 1, 1, false, uncounted}, {Starved + 1, 1, false, uncounted},
		{Bound + 1, 1, true, broken}, {Starved, 1, true, broken}, {Starved + 1, 1, true, uncounted},
	} {
		if got := judge(test.late, test.wrong, test.certain); got != test.want {
			t.Errorf("judge(%v, %d wrong, %v) = %s; want %s", test.late, test.wrong, test.certain, got, test.want)
		}
	}
}

// notes is a test that only notes that it failed.
type notes struct {
	testing.TB
	errors []string
}

func (n *notes) Failed() bool                      { return len(n.errors) > 0 }
func (n *notes) Error(args ...any)                 { n.errors = append(n.errors, fmt.Sprint(args...)) }
func (n *notes) Errorf(format string, args ...any) { n.Error(fmt.Sprintf(format, args...)) }

// TestRuns judges calls beside a pacer that is stopped for a while, or made to look late
// or punctual: which run counts, and how often it is made.
func TestRuns(t *testing.T) {
	was := patience
	patience = 0 // the machine is as busy as each case says
	defer func() { patience = was }()
	paced := func(n int, every time.Duration) (times []time.Time) {
		now := time.Now()
		for i := range n {
			times = append(times, now.Add(time.Duration(i-n)*every))
		}
		return times
	}
	lawful := func(r *Run) { r.Law("acme", paced(11, 10*time.Millisecond), 100, 1) }
	farTooFast := func(r *Run) { r.Law("acme", paced(60, 5*time.Millisecond), 100, 1) }
	tooFast := func(r *Run) { r.Law("acme", paced(11, 8*time.Millisecond), 100, 1) }
	// stalled makes calls in time but for one, which is late, as all of the machine is at that moment.
	stalled := func(late, ofPacer time.Duration) func(*Run) {
		return func(r *Run) {
			r.until(120) // so that the moment is a small part
			calls := paced(51, 10*time.Millisecond)
			calls[4] = calls[4].Add(late)
			arrived := r.arrived
			r.arrived = func() (paced []Call) {
				for _, call := range arrived() {
					if call.Due.After(calls[3]) && !call.At.After(calls[4]) {
						call.At = call.Due.Add(ofPacer)
					}
					paced = append(paced, call)
				}
				return paced
			}
			r.Law("acme", calls, 100, 1)
		}
	}
	here := func(judge func(*Run)) func(*Run) {
		return func(r *Run) {
			judge(r)
			r.here = true
		}
	}
	tooFew := func(r *Run) { r.Used("acme", paced(11, 11*time.Millisecond), 100, 0.99) }
	tooSlow := func(r *Run) {
		r.Took("a second", time.Now().Add(-100*time.Millisecond), time.Now(), 90*time.Millisecond)
	}
	busy := fmt.Sprintf("machine too busy: none of %d runs counts", tries)
	for name, test := range map[string]struct {
		judge func(*Run) // of calls to another process, but for runs that are here
		late  time.Duration
		runs  int
		fails string
	}{
		"all is well":                 {lawful, 0, 1, ""},
		"too fast":                    {tooFast, 0, 1, "acme: law: calls"},
		"too few":                     {tooFew, 0, 1, "acme: 0.9091 of 100/s was used; want 0.99"},
		"too slow":                    {tooSlow, 0, 1, "a second: 100"},
		"busy, and too fast":          {tooFast, Bound + time.Second/100, tries, busy},
		"busy, and far too fast":      {farTooFast, Bound + time.Second/100, 1, "acme: law: calls"},
		"busy, but all is well":       {lawful, Bound + time.Second/100, 1, ""},
		"stalled for a moment":        {stalled(9*time.Millisecond, 9*time.Millisecond), 0, 1, ""},
		"stalled for a moment, here":  {here(stalled(9*time.Millisecond, 9*time.Millisecond)), 0, tries, busy},
		"stalled for less than that":  {stalled(9*time.Millisecond, 3*time.Millisecond), 0, tries, busy},
		"stalled alone":               {stalled(9*time.Millisecond, 0), 0, 1, "acme: law: calls 4.."},
		"starved":                     {lawful, Starved + time.Second/100, tries, busy},
		"nothing is judged":           {func(*Run) {}, 0, 1, "nothing was judged"},
		"one call":                    {func(r *Run) { r.Law("acme", paced(1, 0), 100, 1) }, 0, 1, "nothing to judge"},
		"none of the pacer is beside": {func(r *Run) { r.Took("x", time.Unix(1, 0), time.Unix(2, 0), time.Hour) }, 0, 1, "0 of them beside"},
	} {
		t.Run(name, func(t *testing.T) {
			n, runs := &notes{TB: t}, 0
			MeasureIn(n, func(r *Run) {
				runs++
				r.Here()
				r.until(3)
				arrived := r.arrived
				r.arrived = func() (calls []Call) {
					for _, call := range arrived() { // whatever this machine does
						calls = append(calls, Call{call.Due, call.Due.Add(test.late)})
					}
					return calls
				}
				time.Sleep(150 * time.Millisecond) // what is measured
				r.here = false
				test.judge(r)
			})
			got := strings.Join(n.errors, "\n")
			if runs != test.runs || (test.fails == "") != (got == "") || !strings.Contains(got, test.fails) {
				t.Errorf("%d runs: %q; want %d: %q", runs, got, test.runs, test.fails)
			}
		})
	}
}

// until waits for so many calls of the pacer.
func (r *Run) until(n int) {
	for len(r.arrived()) < n {
		time.Sleep(time.Millisecond)
	}
}

// TestLateAt: a call can be as late as the pacer's calls that were under way when it arrived, or due
// one step before or after; others do not count, nor those within [Bound].
func TestLateAt(t *testing.T) {
	const ms = time.Millisecond
	start := time.Now()
	var calls Calls
	for i, late := range []time.Duration{1, 1, 13, 8, 3, 2, 1} { // in ms; due at 0, 5, 10 ms …
		due := start.Add(time.Duration(i) * every)
		calls = append(calls, Call{due, due.Add(late * ms)})
	}
	for at, want := range map[time.Duration]time.Duration{
		-20: 0, 0: 0, 4: 0, 6: 13, 10: 13, 23: 13, 28: 13, 29: 0, 40: 0, 1000: 0,
	} {
		if got := calls.LateAt(start.Add(at * ms)); got != want*ms {
			t.Errorf("at %d ms: %v; want %d ms", at, got, want)
		}
	}
	if got, want := calls.Behind(), 3.0/7; got != want {
		t.Errorf("%v of the calls were late; want %v", got, want)
	}
}

// TestBeside: the calls of a pacer are judged only if all of them arrived, and some of them beside what is judged.
func TestBeside(t *testing.T) {
	began := time.Now()
	at := func(second int) time.Time { return began.Add(time.Duration(second) * time.Second) }
	call := func(second int) Call { return Call{at(second), at(second)} }
	arrived := []Call{call(2), call(-1), call(1), call(3)} // the one at -1 is of a pacer before
	for name, test := range map[string]struct {
		sent, from, to int
		want           []Call
	}{
		"all":               {3, 0, 4, []Call{call(1), call(2), call(3)}},
		"those beside":      {3, 2, 2, []Call{call(2)}},
		"one is missing":    {4, 0, 4, nil},
		"one was not sent":  {2, 0, 4, nil},
		"none is beside it": {3, 4, 5, nil},
	} {
		got, err := beside(slices.Clone(arrived), test.sent, began, at(test.from), at(test.to))
		if !slices.Equal(got, test.want) || (err == nil) != (test.want != nil) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, test.want)
		}
	}
}

// TestStalledPacer: a pacer that could not run for a while says so with every call that
// was due meanwhile, also when it ends right after.
func TestStalledPacer(t *testing.T) {
	const stall = 2 * Starved
	for name, ends := range map[string]bool{"in a run": false, "at its end": true} {
		t.Run(name, func(t *testing.T) {
			n := &notes{TB: t}
			r := &Run{TB: n}
			r.Here()
			r.until(10)
			from := time.Now()
			_ = r.pacers[0].cmd.Process.Signal(syscall.SIGSTOP)
			time.Sleep(stall) // the stall itself
			if ends {
				r.pacers[0].stdin.Close()
			}
			_ = r.pacers[0].cmd.Process.Signal(syscall.SIGCONT)
			if !ends {
				r.until(10 + int(stall/every))
			}
			r.Took("nothing", from, time.Now(), time.Minute)
			if busy := r.verdict(); !strings.Contains(busy, "late") || n.Failed() {
				t.Errorf("busy: %q; errors: %q", busy, n.errors)
			}
			if calls := r.arrived(); len(calls) < 10+int(stall/every) {
				t.Errorf("%d calls in %v", len(calls), time.Since(from))
			}
		})
	}
}
