package queue

import "sync"

// batcher lets concurrent callers share round trips: what arrives while one is
// under way goes together in the next. A lone caller waits for nobody.
type batcher[Q, A any] struct {
	run func([]Q) ([]A, error) // as many answers as questions

	mu      sync.Mutex
	waiting []ask[Q, A]
	busy    bool
}

type ask[Q, A any] struct {
	question Q
	answer   chan answered[A]
}

type answered[A any] struct {
	answer A
	err    error
}

const mostShared = 100

// do asks one question. It ends with the round trip, which has a bound of its own.
func (b *batcher[Q, A]) do(question Q) (A, error) {
	mine := ask[Q, A]{question, make(chan answered[A], 1)}
	b.mu.Lock()
	b.waiting = append(b.waiting, mine)
	lead := !b.busy
	b.busy = true
	b.mu.Unlock()
	if lead {
		go b.drain()
	}
	a := <-mine.answer
	return a.answer, a.err
}

func (b *batcher[Q, A]) drain() {
	for {
		b.mu.Lock()
		n := min(len(b.waiting), mostShared)
		batch := b.waiting[:n:n]
		b.waiting = b.waiting[n:]
		if n == 0 {
			b.busy = false
			b.waiting = nil
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		questions := make([]Q, n)
		for i, ask := range batch {
			questions[i] = ask.question
		}
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
