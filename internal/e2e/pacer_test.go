package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/smtp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/law"
)

// A pacer calls the receiver at exact times while workers do. Where its own calls
// are missing or late, the machine stood still for all, and nothing is measured.
const (
	pacer = "the-pacer"

	// What lateness of the pacer's calls says that the machine stood still: so much
	// that the gate does not send a call that it wakes for, or so much that two
	// calls of one path come closer to each other than they were sent.
	missing = 3 * time.Millisecond
	closer  = 2 * time.Millisecond
)

// pace calls the receiver until the test ends. log is where its calls are found.
func (s *stage) pace(log string, every time.Duration, send func(ctx context.Context, slot string) error) {
	if s.stopPacer != nil {
		s.stopPacer() // one is enough for the machine
	}
	p := pacing{log, every, time.Now()}
	s.paced = p
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	s.stopPacer = func() {
		cancel()
		running.Wait()
	}
	s.t.Cleanup(s.stopPacer)
	running.Go(func() {
		for slot := 0; ; slot++ {
			next := p.slotAt(slot)
			timer := time.NewTimer(time.Until(next))
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			running.Go(func() { _ = send(ctx, strconv.Itoa(slot)) }) // one that fails is missing
		}
	})
}

// paceWebhooks is the pacer of webhooks.
func (s *stage) paceWebhooks() {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	s.t.Cleanup(client.CloseIdleConnections)
	s.pace("/calls", 5*time.Millisecond, func(ctx context.Context, slot string) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.calls, strings.NewReader("{}"))
		if err != nil {
			return err
		}
		request.Header.Set("Headgate-Tenant", pacer)
		request.Header.Set("Headgate-Job", slot)
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		return err
	})
}

// paceMail is the pacer of mail: it arrives at the end of a conversation, in which
// the machine can stand still more often than in a webhook.
func (s *stage) paceMail() {
	idle := make(chan *smtp.Client, 64)
	s.t.Cleanup(func() {
		close(idle)
		for client := range idle {
			client.Close()
		}
	})
	s.pace("/mails", 10*time.Millisecond, func(_ context.Context, slot string) error {
		var client *smtp.Client
		select {
		case client = <-idle:
		default:
			var err error
			if client, err = smtp.Dial(s.smtp); err != nil {
				return err
			}
		}
		if err := mail(client, slot); err != nil {
			client.Close()
			return err
		}
		select {
		case idle <- client:
			return nil
		default:
			return client.Close()
		}
	})
}

func mail(client *smtp.Client, slot string) error {
	if err := client.Mail("pacer@acme.example"); err != nil {
		return err
	}
	if err := client.Rcpt("you@example.com"); err != nil {
		return err
	}
	w, err := client.Data()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "Headgate-Tenant: %s\r\nHeadgate-Job: %s\r\n\r\nhello\r\n", pacer, slot); err != nil {
		return err
	}
	return w.Close()
}

// pacing is what has to be known of a pacer to judge its calls.
type pacing struct {
	log   string // where they are found
	every time.Duration
	began time.Time
}

func (p pacing) slotAt(slot int) time.Time { return p.began.Add(time.Duration(slot) * p.every) }

// span is a stretch of time.
type span struct{ from, to time.Time }

// stalls are when the machine stood still for that long, in order and apart from
// each other.
func (s *stage) stalls(long time.Duration) (all []span) {
	s.t.Helper()
	var calls []sandbox.Call
	s.get(s.paced.log, &calls)
	arrived, last := map[int]time.Time{}, 0
	for _, call := range calls {
		if slot, err := strconv.Atoi(call.Job); err == nil && call.Tenant == pacer {
			arrived[slot], last = call.At, max(last, slot)
		}
	}
	for slot := range last {
		due := s.paced.slotAt(slot)
		at, ok := arrived[slot]
		if !ok {
			at = due
		} else if at.Sub(due) <= long {
			continue
		}
		// It began after the slot before, and what it held up comes after it.
		still := span{due.Add(-s.paced.every), at.Add(s.paced.every)}
		if n := len(all); n > 0 && !all[n-1].to.Before(still.from) {
			still.from, all = all[n-1].from, all[:n-1]
		}
		all = append(all, still)
	}
	return all
}

// quiet cuts calls of that rate, in order, where the machine stood still when one
// of them came or should have come.
func quiet(calls []time.Time, rate float64, stalls []span) (runs [][]time.Time) {
	calls = slices.SortedFunc(slices.Values(calls), time.Time.Compare)
	still := func(from, to time.Time) bool {
		i, _ := slices.BinarySearchFunc(stalls, from, func(s span, at time.Time) int { return s.to.Compare(at) })
		return i < len(stalls) && !stalls[i].from.After(to)
	}
	gap := time.Duration(float64(time.Second) / rate)
	begin := 0
	for i, at := range calls {
		if i+1 < len(calls) && !still(at, at) {
			next, due := calls[i+1], at.Add(gap)
			if next.Before(due) {
				due = next
			}
			if !still(due, next) {
				continue
			}
		}
		runs = append(runs, calls[begin:i+1])
		begin = i + 1
	}
	return runs
}

// used is how much of a limit the runs of calls used, and for how long they went.
func used(runs [][]time.Time, rate float64) (share float64, lasted time.Duration) {
	n := 0
	for _, run := range runs {
		n += len(run) - 1
		lasted += law.Span(run)
	}
	if lasted == 0 {
		return 0, 0
	}
	return float64(n) / rate / lasted.Seconds(), lasted
}

// excess is by how many calls the worst run is over the law.
func excess(runs [][]time.Time, rate float64, burst int) float64 {
	most := float64(-burst)
	for _, run := range runs {
		most = max(most, law.Excess(run, rate, burst))
	}
	return most
}

// tolerance is how much closer to each other calls may come than they were sent, in
// seconds: by the 5 ms that the promise allows, and by what the machine did to the
// pacer at its worst. A worker can be held up where the pacer was not.
func (s *stage) tolerance() float64 {
	s.t.Helper()
	var calls []sandbox.Call
	s.get(s.paced.log, &calls)
	worst := law.Excess(times(calls, ofTenant(pacer)), 1/s.paced.every.Seconds(), 1) * s.paced.every.Seconds()
	return 0.005 + max(worst, closer.Seconds())
}

// lawful holds calls against the limit.
func (s *stage) lawful(what string, calls []time.Time, rate float64, burst int) {
	s.t.Helper()
	over, allowed := excess(quiet(calls, rate, s.stalls(closer)), rate, burst), rate*s.tolerance()
	s.t.Logf("%s: at most %.3f calls over %v/s; allowed %.3f", what, over, rate, allowed)
	if over > allowed {
		s.t.Errorf("%s: %.3f calls over the limit of %v/s in some window; allowed %.3f", what, over, rate, allowed)
	}
}

// enough checks that a limit was used to at least `least`. Two slots more or less
// are chance: what is left of a short run without stalls has few.
func (s *stage) enough(what string, calls []time.Time, rate, least float64) {
	s.t.Helper()
	share, lasted := used(quiet(calls, rate, s.stalls(missing)), rate)
	s.t.Logf("%s: %.4f of %v/s used in the %v of %v in which the machine did not stand still", what, share, rate, lasted, law.Span(calls))
	switch {
	case lasted < time.Second:
		s.tooLittle("%s: the machine stood still all the time but %v", what, lasted)
	case (least-share)*rate*lasted.Seconds() > 2:
		s.tooLittle("%s: %.4f of the limit of %v/s was used, want %.4f", what, share, rate, least)
	}
}

// measured runs a measurement until what it wants much of is much, three times
// at most: the machine takes from that what others need, and can add nothing to
// it. Whatever else fails, fails at once.
func measured(t *testing.T, limits string, once func(*stage)) {
	const tries = 3
	for try := 1; ; try++ {
		var short string
		passed := t.Run(fmt.Sprint(try), func(t *testing.T) {
			s := newStage(t, limits)
			once(s)
			short = strings.Join(s.short, "; ")
		})
		switch {
		case short == "" || !passed:
			return
		case try == tries:
			t.Errorf("%s, in the last of %d tries", short, tries)
			return
		}
		t.Logf("%s: once more", short)
	}
}

// tooLittle notes what only counts if it happens again; see measured.
func (s *stage) tooLittle(format string, args ...any) {
	s.short = append(s.short, fmt.Sprintf(format, args...))
}
