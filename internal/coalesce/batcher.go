package coalesce

import (
	"sync"
	"time"
)

// Batcher lets concurrent callers share round trips. It makes one round trip at a time, and
// unlike a [Group] it keeps a gap between their starts, so that more callers share each one.
// It is for questions that are not urgent. A caller that comes after the gap does not wait.
// Callers cannot leave before the answer. Its exported fields are set before its first use.
type Batcher[Q, A any] struct {
	Run func([]Q) ([]A, error) // returns an answer for each question
	Gap time.Duration          // minimum time between the starts of two round trips

	Linger time.Duration // added to the gap while fewer than Enough questions wait
	Enough int

	Size func(Q) int // size of a question in bytes; nil: all are small

	mu      sync.Mutex
	waiting []ask[Q, A]
	busy    bool
	full    chan struct{} // has a value when enough questions wait
	next    time.Time     // when the next round trip may start; used only by drain
}

type ask[Q, A any] struct {
	question Q
	answer   chan answered[A]
}

type answered[A any] struct {
	answer A
	err    error
}

// A round trip takes up to 100 questions, and none after the one that passes 2 MiB.
const (
	maxShared      = 100
	maxSharedBytes = 2 << 20
)

// Do asks one question and waits for its answer. The timeouts of the round trip bound the
// wait.
func (b *Batcher[Q, A]) Do(question Q) (A, error) {
	mine := ask[Q, A]{question, make(chan answered[A], 1)}
	b.mu.Lock()
	b.waiting = append(b.waiting, mine)
	lead := !b.busy
	b.busy = true
	if b.full == nil {
		b.full = make(chan struct{}, 1)
	}
	if len(b.waiting) == b.Enough {
		b.signal()
	}
	b.mu.Unlock()
	if lead {
		go b.drain()
	}
	a := <-mine.answer
	return a.answer, a.err
}

// signal says that enough questions wait.
func (b *Batcher[Q, A]) signal() {
	select {
	case b.full <- struct{}{}:
	default:
	}
}

func (b *Batcher[Q, A]) drain() {
	for b.more() {
		time.Sleep(time.Until(b.next)) // questions that come meanwhile share the round trip
		select {
		case <-time.After(time.Until(b.next.Add(b.Linger))):
		case <-b.full:
		}
		batch := b.take()
		questions := make([]Q, len(batch))
		for i, ask := range batch {
			questions[i] = ask.question
		}
		b.next = time.Now().Add(b.Gap)
		answers, err := b.Run(questions)
		for i, ask := range batch {
			a := answered[A]{err: err}
			if err == nil {
				a.answer = answers[i]
			}
			ask.answer <- a
		}
	}
}

// more reports whether questions wait. If not, it marks the Batcher as idle, and drain
// ends.
func (b *Batcher[Q, A]) more() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy = len(b.waiting) > 0
	if !b.busy {
		b.waiting = nil
	}
	return b.busy
}

func (b *Batcher[Q, A]) take() []ask[Q, A] {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.full: // it was about these
	default:
	}
	n, bytes := 0, 0
	for n < min(len(b.waiting), maxShared) && bytes < maxSharedBytes {
		if b.Size != nil {
			bytes += b.Size(b.waiting[n].question)
		}
		n++
	}
	batch := b.waiting[:n:n]
	if b.waiting = b.waiting[n:]; len(b.waiting) >= b.Enough {
		b.signal() // no question that comes will be the one that makes them enough
	}
	return batch
}
