package queue

import (
	"sync"
	"time"
)

// batcher lets concurrent callers share round trips, of which it makes one at a time.
// Unlike internal/coalesce it keeps a gap between their beginnings, so that more callers
// share each of them: ends of jobs are not urgent. Callers cannot leave. One who comes
// after the gap does not wait.
type batcher[Q, A any] struct {
	run func([]Q) ([]A, error) // as many answers as questions
	gap time.Duration          // the least time between the beginnings of two round trips

	linger time.Duration // how much longer the gap is while fewer than enough questions wait
	enough int

	size func(Q) int // of a question, in bytes; nil: all are small

	mu      sync.Mutex
	waiting []ask[Q, A]
	busy    bool
	full    chan struct{} // has a value when enough wait; only do and drain use it
	next    time.Time     // when the next round trip may begin; only drain uses it
}

type ask[Q, A any] struct {
	question Q
	answer   chan answered[A]
}

type answered[A any] struct {
	answer A
	err    error
}

// A round trip ends with its 100th question, or with the one that passes 2 MiB.
const (
	maxShared      = 100
	maxSharedBytes = 2 << 20
)

// do asks one question and returns with its answer. The timeouts of the round trip bound
// how long that takes.
func (b *batcher[Q, A]) do(question Q) (A, error) {
	mine := ask[Q, A]{question, make(chan answered[A], 1)}
	b.mu.Lock()
	b.waiting = append(b.waiting, mine)
	lead := !b.busy
	b.busy = true
	if b.full == nil {
		b.full = make(chan struct{}, 1)
	}
	if len(b.waiting) == b.enough {
		select {
		case b.full <- struct{}{}:
		default:
		}
	}
	b.mu.Unlock()
	if lead {
		go b.drain()
	}
	a := <-mine.answer
	return a.answer, a.err
}

func (b *batcher[Q, A]) drain() {
	for b.more() {
		time.Sleep(time.Until(b.next)) // questions that come meanwhile join
		select {
		case <-time.After(time.Until(b.next.Add(b.linger))):
		case <-b.full:
		}
		batch := b.take()
		questions := make([]Q, len(batch))
		for i, ask := range batch {
			questions[i] = ask.question
		}
		b.next = time.Now().Add(b.gap)
		answers, err := b.run(questions)
		for i, ask := range batch {
			a := answered[A]{err: err}
			if err == nil {
				a.answer = answers[i]
			}
			ask.answer <- a
		}
	}
}

// more reports whether questions wait. If none does, the drain ends.
func (b *batcher[Q, A]) more() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy = len(b.waiting) > 0
	if !b.busy {
		b.waiting = nil
	}
	return b.busy
}

func (b *batcher[Q, A]) take() []ask[Q, A] {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, bytes := 0, 0
	for n < min(len(b.waiting), maxShared) && bytes < maxSharedBytes {
		if b.size != nil {
			bytes += b.size(b.waiting[n].question)
		}
		n++
	}
	batch := b.waiting[:n:n]
	b.waiting = b.waiting[n:]
	return batch
}
