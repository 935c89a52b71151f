package pacer

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/law"
)

const (
	// Tolerance is how much closer together calls may arrive than their limit allows. Headgate
	// promises that on any machine.
	Tolerance = 5 * time.Millisecond

	// Bound is how late the pacer's own calls may arrive in a run whose broken promises fail the
	// test. A worker may send up to 3 ms after a slot, so a transmission that takes longer than the
	// rest of the tolerance breaks the law for calls that were sent in time.
	Bound = 2 * time.Millisecond

	// Busy is the share of the pacer's calls that may be later than [Bound] in a run that counts
	// because delays are known: see [Run.At].
	Busy = 0.25

	// Starved is the lateness of the pacer's calls from which no run counts: a process that hardly
	// runs proves nothing by what it does not do. In other runs, no delay excuses calls that are this much too early.
	Starved = 250 * time.Millisecond

	tries = 4 // a run that does not count is repeated three times
)

// patience is how long a test waits for a busy machine to become calm before it measures for the
// second time, and doubles with each further time: most loads are short, and some last minutes.
var patience = 20 * time.Second

// Run is one run of a measurement.
type Run struct {
	testing.TB
	pacers   processes
	began    time.Time // when the pacers began
	arrived  func() []Call
	here     bool      // the pacer calls the process that is judged
	from, to time.Time // the judged period
	laws     judged
	uses     judged
	took     []string
	wrong    []broke
}

// broke is a promise that was broken, and how to judge it again when it is known how late the
// machine was; nil if that cannot be told.
type broke struct {
	text    string
	again   func(Calls) error
	certain bool // no delay explains it
}

// judged counts what was judged for one promise.
type judged struct {
	what, calls int
	worst       string
	by          float64
}

func (j *judged) add(what string, calls int, by float64, format string, args ...any) {
	j.what++
	j.calls += calls
	if j.what == 1 || by > j.by {
		j.by, j.worst = by, what+": "+fmt.Sprintf(format, args...)
	}
}

// Call is a call of the pacer.
type Call struct{ Due, At time.Time }

// Calls are calls of the pacer, in the order in which they were due.
type Calls []Call

// Latest returns the max lateness of calls.
func (c Calls) Latest() (late time.Duration) {
	for _, call := range c {
		late = max(late, call.At.Sub(call.Due))
	}
	return late
}

// LateAt returns how late another process's call may have been that arrived at a time: as late as
// the calls of the pacer that were under way then, or due just before or after. It is 0 if these
// were in time.
func (c Calls) LateAt(at time.Time) (late time.Duration) {
	end, _ := slices.BinarySearchFunc(c, at.Add(every), func(call Call, t time.Time) int { return call.Due.Compare(t) })
	for i := end - 1; i >= 0 && c[i].Due.After(at.Add(-Starved)); i-- {
		if by := c[i].At.Sub(c[i].Due); by > Bound && !c[i].At.Before(at.Add(-every)) {
			late = max(late, by)
		}
	}
	return late
}

// Behind returns the share of calls that were later than [Bound].
func (c Calls) Behind() float64 {
	n := 0
	for _, call := range c {
		if call.At.Sub(call.Due) > Bound {
			n++
		}
	}
	return float64(n) / float64(len(c))
}

func inOrder(calls []Call) Calls {
	slices.SortFunc(calls, func(a, b Call) int { return a.Due.Compare(b.Due) })
	return calls
}

// Measure repeats a measurement until a run counts, and judges that run.
func Measure(t *testing.T, once func(t *testing.T, r *Run)) {
	t.Helper()
	untilItCounts(t, func(try int) (busy string) {
		t.Run(fmt.Sprint("try-", try), func(t *testing.T) {
			r := &Run{TB: t}
			once(t, r)
			busy = r.verdict()
		})
		return busy
	})
}

// MeasureIn is [Measure] without subtests, as in benchmarks. With -short, which checks only that a benchmark works, a run
// that does not count is not repeated.
func MeasureIn(t testing.TB, once func(r *Run)) {
	t.Helper()
	untilItCounts(t, func(int) string {
		r := &Run{TB: t}
		once(r)
		busy := r.verdict()
		if testing.Short() {
			return ""
		}
		return busy
	})
}

func untilItCounts(t testing.TB, run func(try int) (busy string)) {
	t.Helper()
	var all []string
	for try := 1; try <= tries; try++ {
		busy := run(try)
		if busy == "" {
			return
		}
		if all = append(all, busy); try < tries {
			awaitCalm(t, patience<<(try-1))
		}
	}
	t.Errorf("machine too busy: none of %d runs counts:\n%s", tries, strings.Join(all, "\n"))
}

// awaitCalm waits until the calls of a pacer alone are in time for a second, at most so long.
func awaitCalm(t testing.TB, most time.Duration) {
	t.Helper()
	for began := time.Now(); time.Since(began) < most; {
		r := &Run{TB: t}
		r.Here()
		time.Sleep(time.Second) // the measured time
		if _, err := r.pacers.stop(); err != nil {
			t.Error(err)
			return
		}
		if Calls(r.arrived()).Latest() <= Bound {
			return
		}
	}
}

// At starts a pacer with calls to a receiver that runs [Ahead]; arrived returns those that arrived. What is judged does not
// run in that process, so delays of the pacer's calls are the machine's, and known moment by moment.
func (r *Run) At(target string, arrived func() []Call) {
	r.Helper()
	r.began = time.Now()
	r.pacers, r.arrived = startAhead(r.TB, target), arrived
}

// Here starts a pacer with calls to the test's own receiver in this process, which does not run
// [Ahead]; so the pacer does not either. What is judged runs in this process too, and its own stalls delay the pacer's calls,
// so they excuse nothing.
func (r *Run) Here() {
	r.Helper()
	var mu sync.Mutex
	var calls []Call
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		at := time.Now()
		if due, ok := Due(request.Header.Get("Headgate-Job")); ok {
			mu.Lock()
			calls = append(calls, Call{due, at})
			mu.Unlock()
		}
	}))
	r.Cleanup(server.Close)
	r.began, r.here = time.Now(), true
	r.pacers = processes{start(r.TB, server.URL, exec.Command(self(r)))}
	r.arrived = func() []Call {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(calls)
	}
}

// Wrong records an error that counts if the machine was not busy between two times.
func (r *Run) Wrong(from, to time.Time, format string, args ...any) {
	r.span(from, to)
	r.wrong = append(r.wrong, broke{text: fmt.Sprintf(format, args...)})
}

// Law judges calls by a limit: between any two of them there are at most
// burst + rate × (the time between them + [Tolerance]) calls.
func (r *Run) Law(what string, calls []time.Time, rate float64, burst int) {
	r.Helper()
	if len(calls) < 2 {
		r.Errorf("%s: %d calls, in which there is nothing to judge", what, len(calls))
		return
	}
	from, to := ends(calls)
	r.span(from, to)
	excess := law.Excess(calls, rate, burst)
	early := time.Duration(excess / rate * float64(time.Second))
	r.laws.add(what, len(calls), early.Seconds(), "%.3f calls over %v/s, or %v early", excess, rate, early.Round(10*time.Microsecond))
	if err := law.Check(calls, rate, burst, Tolerance); err != nil {
		again := func(paced Calls) error { return law.CheckLate(calls, rate, burst, Tolerance, paced.LateAt) }
		r.wrong = append(r.wrong, broke{fmt.Sprintf("%s: %v", what, err), again, law.Check(calls, rate, burst, Starved+Tolerance) != nil})
	}
}

// Used judges how much of a rate was used from the first to the last call.
func (r *Run) Used(what string, calls []time.Time, rate, least float64) (share float64) {
	r.Helper()
	if len(calls) < 2 {
		r.Errorf("%s: %d calls, in which there is nothing to judge", what, len(calls))
		return 0
	}
	from, to := ends(calls)
	r.span(from, to)
	share = float64(len(calls)-1) / rate / to.Sub(from).Seconds()
	r.uses.add(what, len(calls), -share, "%.4f of %v/s used in %v", share, rate, to.Sub(from).Round(time.Millisecond))
	if share < least {
		r.Wrong(from, to, "%s: %.4f of %v/s was used; want %v", what, share, rate, least)
	}
	return share
}

// Took judges a duration.
func (r *Run) Took(what string, from, to time.Time, most time.Duration) {
	r.Most(what, from, to, to.Sub(from), most)
}

// Most judges a duration that was measured between two times.
func (r *Run) Most(what string, from, to time.Time, got, most time.Duration) {
	r.span(from, to)
	r.took = append(r.took, fmt.Sprintf("%s: %v of %v", what, got.Round(time.Microsecond), most))
	if got > most {
		r.Wrong(from, to, "%s: %v; want at most %v", what, got, most)
	}
}

// Number judges a number that was measured between two times.
func (r *Run) Number(what string, from, to time.Time, got, most float64) {
	r.span(from, to)
	r.took = append(r.took, fmt.Sprintf("%s: %.4g of %.4g", what, got, most))
	if got > most {
		r.Wrong(from, to, "%s: %.4g; want at most %.4g", what, got, most)
	}
}

func (r *Run) span(from, to time.Time) {
	if r.from.IsZero() || from.Before(r.from) {
		r.from = from
	}
	if to.After(r.to) {
		r.to = to
	}
}

// verdict ends a run. It fails the test if the run counts and has errors.
func (r *Run) verdict() (busy string) {
	r.Helper()
	switch {
	case r.Failed():
		return ""
	case r.pacers == nil || r.from.IsZero():
		r.Error("nothing was judged, or there was no pacer")
		return ""
	}
	sent, err := r.pacers.stop()
	if err != nil {
		r.Error(err)
		return ""
	}
	calls, err := beside(r.arrived(), sent, r.began, r.from, r.to)
	if err != nil {
		r.Error(err)
		return ""
	}
	late, behind := calls.Latest(), calls.Behind()
	r.Logf("judged, all of it:\n%s\nthe pacer's %d calls in these %v were at most %v late, and %.2f %% of them later than %v",
		r.summary(), len(calls), r.to.Sub(r.from).Round(time.Millisecond), late.Round(10*time.Microsecond), 100*behind, Bound)
	wrong := r.wrong
	if !r.here && late > Bound && behind <= Busy {
		wrong = slices.DeleteFunc(slices.Clone(wrong), func(b broke) bool { return b.again != nil && b.again(calls) == nil })
		if known := len(r.wrong) - len(wrong); known > 0 {
			r.Logf("%d laws hold if a call may be as late as the pacer was just then", known)
		}
	}
	switch judge(late, len(wrong), slices.ContainsFunc(wrong, func(b broke) bool { return b.certain })) {
	case broken:
		r.Error(few(wrong))
	case uncounted:
		busy = fmt.Sprintf("the pacer's calls were up to %v late, and %.2f %% of them later than %v; %s",
			late.Round(10*time.Microsecond), 100*behind, Bound, few(wrong))
		r.Logf("the machine was too busy, and this run does not count: %s", busy)
	}
	return busy
}

type outcome string

const (
	kept      outcome = "kept"
	broken    outcome = "broken"
	uncounted outcome = "uncounted"
)

// judge returns the verdict on a run with the max lateness of its pacer, and so many broken promises; certain: no delay
// explains one of them.
func judge(late time.Duration, wrong int, certain bool) outcome {
	switch {
	case wrong > 0 && late <= Bound, certain && late <= Starved:
		return broken
	case wrong > 0 || late > Starved:
		return uncounted
	}
	return kept
}

// few returns the first of many errors.
func few(all []broke) string {
	const most = 3
	var texts []string
	for _, b := range all[:min(most, len(all))] {
		texts = append(texts, b.text)
	}
	if len(all) > most {
		texts = append(texts, fmt.Sprintf("and %d more", len(all)-most))
	}
	return strings.Join(texts, "; ")
}

// summary describes how much was judged.
func (r *Run) summary() string {
	lines := slices.Clone(r.took)
	if j := r.laws; j.what > 0 {
		lines = append(lines, fmt.Sprintf("the law, of %d with %d calls, at worst %s", j.what, j.calls, j.worst))
	}
	if j := r.uses; j.what > 0 {
		lines = append(lines, fmt.Sprintf("the use, of %d with %d calls, at worst %s", j.what, j.calls, j.worst))
	}
	return strings.Join(lines, "\n")
}

func ends(times []time.Time) (first, last time.Time) {
	return slices.MinFunc(times, time.Time.Compare), slices.MaxFunc(times, time.Time.Compare)
}

// Beside starts a pacer for a test that judges by itself. The function that it returns stops the
// pacer, and returns the pacer's calls between two times.
func Beside(t testing.TB, target string, arrived func() []Call) func(from, to time.Time) Calls {
	t.Helper()
	began := time.Now()
	pacers := startAhead(t, target)
	return func(from, to time.Time) Calls {
		t.Helper()
		sent, err := pacers.stop()
		if err != nil {
			t.Fatal(err)
		}
		calls, err := beside(arrived(), sent, began, from, to)
		if err != nil {
			t.Fatal(err)
		}
		return calls
	}
}

// beside returns the calls of a pacer between two times. It returns an error if there are none, or if not all calls
// since the pacer began arrived. A receiver can have had several pacers, one after another.
func beside(arrived []Call, sent int, began, from, to time.Time) (Calls, error) {
	calls := inOrder(slices.DeleteFunc(arrived, func(call Call) bool { return call.Due.Before(began) }))
	all := len(calls)
	calls = slices.DeleteFunc(calls, func(call Call) bool { return call.At.Before(from) || call.Due.After(to) })
	if all != sent || len(calls) == 0 {
		return nil, fmt.Errorf("%d of %d calls of the pacer arrived, %d of them beside what was judged", all, sent, len(calls))
	}
	return calls, nil
}
