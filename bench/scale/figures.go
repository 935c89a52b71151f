package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/test/law"
)

// figures are what a run is judged by.
type figures struct {
	calls   int
	use     float64 // calls, of those that the limit allows while the ledger answers
	tenants int     // that had backlog all the time
	jain    float64 // of their calls / weight
	spread  float64 // the largest difference of one from the mean
	traffic float64 // messages between partitions and ledger, for each call
	excess  float64 // calls beyond the limit in the worst window
	resumed float64 // seconds until a partition that was paused has its share again
}

func (w *world) figures() figures {
	f := figures{calls: len(w.calls), tenants: len(w.shares), jain: law.Jain(w.shares)}
	from, to := int64(epoch)+500*ms, w.now
	useful, length := 0, to-from
	absent := func(us int64) bool {
		return us < from || us > to || slices.ContainsFunc(w.absences, func(a [2]int64) bool { return us >= a[0] && us < a[1] })
	}
	for _, a := range w.absences {
		length -= a[1] - a[0]
	}
	times := make([]time.Time, len(w.calls))
	for i, us := range w.calls {
		times[i] = time.UnixMicro(us)
		if !absent(us) {
			useful++
		}
	}
	f.use = float64(useful) / (float64(w.c.rate) * float64(length) / 1e6)
	f.traffic = float64(w.messages) / float64(max(1, len(w.calls)))
	// Moments are whole µs, so any window may have what flows back in one of them. The last
	// part is for the sum of 10^6 fractions.
	f.excess = law.Excess(times, float64(w.c.rate), int(w.c.burst)) - float64(w.c.rate)/1e6 - 1e-3
	sum := 0.0
	for _, share := range w.shares {
		sum += share
	}
	mean := sum / float64(max(1, len(w.shares)))
	for i, share := range w.shares {
		one := 1 / w.weights[i] // a call more or less is chance
		f.spread = max(f.spread, (share-one)/mean-1, 1-(share+one)/mean)
	}
	f.resumed = w.untilShare()
	return f
}

// untilShare looks at the calls of a partition after its pause: after which of the first tenths
// of a second it has had nine tenths of what it gets later.
func (w *world) untilShare() float64 {
	if len(w.resumed) < 2 {
		return 1e9
	}
	const bin = 100 * ms
	from := w.resumed[0]
	bins := make([]float64, (w.now-from)/bin+1)
	for _, at := range w.resumed[1:] {
		bins[(at-from)/bin]++
	}
	later := bins[len(bins)/2 : len(bins)-1]
	sum := 0.0
	for _, n := range later {
		sum += n
	}
	for i, n := range bins {
		if n >= 0.9*sum/float64(len(later)) {
			return float64(i+1) * bin / 1e6
		}
	}
	return 1e9
}

// print prints the figures beside their targets. The error names the targets that were missed.
func (f figures) print(out io.Writer) error {
	var errs []error
	row := func(name string, value float64, target string, ok bool) {
		fmt.Fprintf(out, "  %-58s %8.4f  %s\n", name, value, target)
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %.4f; the target is %s", name, value, target))
		}
	}
	row("use of the limit", f.use, "at least 0.97", f.use >= 0.97)
	row(fmt.Sprintf("fairness by weight of %d tenants with backlog (Jain)", f.tenants), f.jain, "at least 0.98", f.jain >= 0.98)
	row("the largest difference of one of them from its share", f.spread, "at most 0.1, and 0.05 is wanted", f.spread <= 0.1)
	row("lease messages for each call", f.traffic, "at most 0.05", f.traffic <= 0.05)
	row("calls beyond the limit in the worst window", max(0, f.excess), "0", f.excess <= 0)
	row("seconds until a resumed partition has its share", f.resumed, "at most 1", f.resumed <= 1)
	return errors.Join(errs...)
}
