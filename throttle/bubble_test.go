package throttle

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// bubble is where time moves only while everybody waits. It is the clock of the
// limiters too. Sockets stay outside: commands are carried out by other goroutines.
type bubble struct {
	t       *testing.T
	client  *redis.Client // what it is asked leaves the bubble
	scripts atomic.Int64  // asked so far

	// meet is asked before a command leaves; its error is the command's.
	meet atomic.Pointer[func(ctx context.Context, cmd redis.Cmder) error]
}

// carrier carries out commands, outside of bubbles.
type carrier struct {
	in  chan redis.Cmder
	out chan error
}

// carriers are more than a test has commands under way at once, or it would wait
// for itself.
const carriers = 16

// inBubbles runs a test in a bubble, on the real Redis and on the embedded one.
func inBubbles(t *testing.T, test func(b *bubble)) {
	onBoth(t, func(t *testing.T, client redis.UniversalClient) { inBubble(t, client, test) })
}

func inBubble(t *testing.T, outside redis.UniversalClient, test func(b *bubble)) {
	t.Helper()
	idle := make(chan carrier, carriers)
	var working sync.WaitGroup
	for range carriers {
		c := carrier{make(chan redis.Cmder), make(chan error)}
		idle <- c
		working.Go(func() {
			for cmd := range c.in {
				c.out <- outside.Process(context.Background(), cmd)
			}
		})
	}
	defer func() {
		for range carriers {
			close((<-idle).in)
		}
		working.Wait()
	}()
	inside := redis.NewClient(&redis.Options{Addr: "127.0.0.1:0"})
	defer inside.Close()
	b := &bubble{client: inside}
	inside.AddHook(bubbleHook{b, idle})
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)))
		b.t = t
		test(b)
	})
}

type bubbleHook struct {
	b    *bubble
	idle chan carrier
}

func (h bubbleHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h bubbleHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h bubbleHook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			h.b.scripts.Add(1)
		}
		if meet := h.b.meet.Load(); meet != nil {
			if err := (*meet)(ctx, cmd); err != nil {
				cmd.SetErr(err)
				return err
			}
		}
		if err := ctx.Err(); err != nil { // as a client that has not sent it yet
			cmd.SetErr(err)
			return err
		}
		c := <-h.idle
		defer func() { h.idle <- c }()
		c.in <- cmd
		return <-c.out
	}
}

// meets sets what commands meet on their way; nil: nothing.
func (b *bubble) meets(meet func(ctx context.Context, cmd redis.Cmder) error) {
	if meet == nil {
		b.meet.Store(nil)
		return
	}
	b.meet.Store(&meet)
}

var errDown = errors.New("the wire is down")

func down(context.Context, redis.Cmder) error { return errDown }

// limiter is a limiter of the bubble, on buckets of its own.
func (b *bubble) limiter(limits ...Limit) *clocked {
	b.t.Helper()
	c := newClocked(b.t, b.client, limits...)
	c.Limiter.now = time.Now
	return c
}

// process is what another process has: the same buckets.
func (b *bubble) process(of *clocked, limits ...Limit) *Limiter {
	b.t.Helper()
	l, err := New(b.client, of.prefix, limits...)
	if err != nil {
		b.t.Fatal(err)
	}
	l.now = time.Now
	return l
}
