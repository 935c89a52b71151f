// Package seats keeps a text in Redis that one process at a time replaces. On a Cluster it is kept in three places on
// different nodes, its seats, and goes on while one of them is away; else in one.
//
// Who wants to replace the text begins a term, for which it asks all seats: a seat that agrees accepts nothing of an
// earlier term any more. If more than half of them agree, it knows the latest text, because each text that was stored is
// in more than half. Then it stores texts in more than half of the seats, until another process has begun a term. This is
// Multi-Paxos for one value.
//
// A seat whose node was restarted without its last writes, or failed over, may have forgotten a text or a term. A
// single one does no harm as long as the others answer.
package seats

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/store"
)

// ErrTaken means that another process has replaced the text, or has begun a term to do so.
var ErrTaken = errors.New("another worker has changed it")

// Register is a text that is kept in seats. Only one goroutine may use it.
type Register struct {
	client redis.UniversalClient
	caller string // no other one has this name
	seats  []seat
	kept   string // for how long after the last change, in ms; "": for ever
	silent Silent // seats that it does not ask

	term   uint64 // that it began last
	holds  bool   // it began it, and has stored all that it wanted to
	seen   uint64 // the latest term of which it knows
	number uint64 // of the text that it read or stored last
}

type seat struct {
	tag, key string
	busy     *atomic.Bool // it has not answered the last question yet
	damaged  *atomic.Bool // its last answer could not be read
}

// Silent has the seats that have not answered a question in time. Registers that share it do not ask such a seat until
// it has answered that question, so only one of them waits for it. Only one goroutine may use them.
type Silent map[string]*atomic.Bool // by hash tag: busy of the seat in the register that waited

func (s Silent) has(tag string) bool {
	busy := s[tag]
	return busy != nil && busy.Load()
}

const (
	// patience is how long it waits for seats.
	patience = time.Second

	// grace is how long a read waits for the last seat: a seat may have lost its last writes.
	grace = 100 * time.Millisecond

	beginTries = 3 // terms that it begins at most: others may begin some, too
)

// New returns the register that has a key of a queue, for a worker. Redis keeps it for ever, see [Register.Keep].
func New(client redis.UniversalClient, worker, queue, key string) *Register {
	r := &Register{client: client, caller: worker + "/" + rand.Text(), silent: Silent{}}
	for _, tag := range Tags(client, queue) {
		r.seats = append(r.seats, seat{tag, keyOf(key, queue, tag), new(atomic.Bool), new(atomic.Bool)})
	}
	return r
}

// Share makes the register one of those that share what they know of silent seats. It is called before the first use.
func (r *Register) Share(silent Silent) *Register {
	r.silent = silent
	return r
}

// Keep makes Redis keep the text for so long after each change, or longer if an earlier change said so.
func (r *Register) Keep(kept time.Duration) { r.kept = strconv.FormatInt(kept.Milliseconds(), 10) }

// keyOf returns the key that a seat has instead of a queue's.
func keyOf(key, queue, tag string) string {
	return strings.Replace(key, "{"+queue+"}", "{"+tag+"}", 1)
}

// Expire lets a text expire that is not replaced for so long.
func Expire(ctx context.Context, client redis.UniversalClient, queue, key string, kept time.Duration) error {
	for _, tag := range Tags(client, queue) {
		if err := client.PExpire(ctx, keyOf(key, queue, tag), kept).Err(); err != nil {
			return err
		}
	}
	return nil
}

// Damaged returns the keys of the seats whose last answer could not be read. Such a one does no harm as long as more than
// half can be read, and stays as it is.
func (r *Register) Damaged() (keys []string) {
	for _, s := range r.seats {
		if s.damaged.Load() {
			keys = append(keys, s.key)
		}
	}
	return keys
}

// answer is what a seat says.
type answer struct {
	err    error
	ok     bool   // it agreed
	term   uint64 // the latest that it agreed to
	of     uint64 // the term in which its text was stored
	number uint64 // of its text; 0: it has none
	text   string
}

// newer reports whether the text of an answer was stored after that of another.
func (a answer) newer(than answer) bool {
	return a.of > than.of || a.of == than.of && a.number > than.number
}

// Read returns the text that was stored last and its number: each text has a higher one than those before it. Number is 0
// if there is none. After an error it is not known.
func (r *Register) Read(ctx context.Context) (text string, number uint64, err error) {
	last, all, err := r.latest(ctx, 0) // a term to which none agrees
	if err != nil && !errors.Is(err, ErrTaken) {
		return "", 0, err
	}
	if !all { // it may be in one seat alone, and lost with that
		if last, err = r.begin(ctx); err != nil {
			return "", 0, err
		}
	}
	r.number = last.number
	return last.text, last.number, nil
}

// Store replaces the text that Read returned, or that it stored since, and returns the number of the new one, which is
// at least `least`. The error is [ErrTaken] if another process has stored one. After an error the next Read returns
// either of them.
func (r *Register) Store(ctx context.Context, least uint64, text string) (number uint64, err error) {
	if !r.holds || r.seen > r.term {
		last, err := r.begin(ctx)
		if err != nil {
			return 0, err
		}
		if last.number != r.number {
			return 0, ErrTaken
		}
	}
	number = max(r.number+1, least)
	err = r.most(ctx, r.term, fmt.Sprintf("%d %s", number, text), nil)
	if r.holds = err == nil; !r.holds {
		return 0, err
	}
	r.number = number
	return number, nil
}

// begin begins a term, and returns the latest text, which is then in more than half of the seats.
func (r *Register) begin(ctx context.Context) (last answer, err error) {
	for range beginTries {
		r.term = max(r.term, r.seen) + 1
		var all bool
		last, all, err = r.latest(ctx, r.term)
		if err == nil && !all {
			err = r.most(ctx, r.term, fmt.Sprintf("%d %s", last.number, last.text), nil)
		}
		if r.holds = err == nil; !errors.Is(err, ErrTaken) {
			break
		}
	}
	return last, err
}

// latest asks all seats for a term, and returns the latest text, and whether more than half of the seats have it.
func (r *Register) latest(ctx context.Context, term uint64) (last answer, all bool, err error) {
	same := 0
	err = r.most(ctx, term, "", func(a answer) {
		switch {
		case a.newer(last):
			last, same = a, 1
		case !last.newer(a):
			same++
		}
	})
	return last, same > len(r.seats)/2, err
}

// most asks all seats to agree to a term, or to store a text in it, and waits until more than half have. It calls each
// for every seat that answered.
func (r *Register) most(ctx context.Context, term uint64, text string, each func(answer)) error {
	answers, asked, need := make(chan answer, len(r.seats)), 0, len(r.seats)/2+1
	kept := r.kept // a late question does not see the next Keep
	for _, s := range r.seats {
		if len(r.seats) == 1 {
			answers <- r.ask(ctx, s, term, text, kept)
		} else if !r.silent.has(s.tag) && s.busy.CompareAndSwap(false, true) {
			go func() {
				a := r.ask(context.WithoutCancel(ctx), s, term, text, kept) // it may come late
				s.busy.Store(false)
				answers <- a
			}()
		} else {
			continue
		}
		asked++
	}
	failed, late := context.DeadlineExceeded, time.NewTimer(patience)
	defer late.Stop()
	agreed, taken := 0, 0
waiting:
	for range asked {
		select {
		case <-late.C:
			for _, s := range r.seats {
				if s.busy.Load() {
					r.silent[s.tag] = s.busy
				}
			}
			break waiting
		case a := <-answers:
			switch {
			case a.err != nil:
				failed = a.err
				continue
			case a.ok:
				agreed++
			default:
				taken++
			}
			if r.seen = max(r.seen, a.term); each != nil {
				each(a)
			}
		}
		if text != "" && agreed >= need {
			return nil
		}
		if agreed+taken == need {
			late.Reset(grace)
		}
	}
	switch {
	case agreed >= need:
		return nil
	case agreed+taken >= need:
		return ErrTaken
	}
	return fmt.Errorf("%d of %d seats of %s answered: %w", agreed+taken, len(r.seats), r.seats[0].key, failed)
}

// ask asks a seat to agree to a term, or to store a text in it.
func (r *Register) ask(ctx context.Context, s seat, term uint64, text, kept string) answer {
	reply, err := store.LedgerScript.Run(ctx, r.client, store.KeysOf(s.tag, s.key), s.tag, term, r.caller, text, kept)
	if err != nil {
		return answer{err: err}
	}
	read := store.Read(reply)
	a := answer{ok: read.Flag(), term: uint64(read.Int()), of: uint64(read.Int())}
	number, rest, _ := strings.Cut(read.Text(), " ")
	a.text = rest
	if err := read.End(); err != nil {
		return answer{err: err}
	}
	if number != "" {
		a.number, err = strconv.ParseUint(number, 10, 64)
	}
	if s.damaged.Store(err != nil); err != nil {
		return answer{err: fmt.Errorf("%s is damaged: delete it, and what is shared there counts as lost", s.key)}
	}
	return a
}
