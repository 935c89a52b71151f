package queue

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

// slowReplan blocks each slice of a replan until the test lets it go, or is over.
type slowReplan struct {
	release chan struct{}
	over    <-chan struct{}

	mu                 sync.Mutex
	began, under, most int
}

func (h *slowReplan) on(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	args := cmd.Args()
	// The worker's own sweep, which repairs, is let through.
	if len(args) < 2 || scriptName(fmt.Sprint(args[1])) != "sweep" || args[len(args)-1] != false {
		return next(ctx, cmd)
	}
	h.mu.Lock()
	h.began++
	h.under++
	h.most = max(h.most, h.under)
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.under--
	}()
	select {
	case <-h.release:
	case <-h.over:
	}
	return next(ctx, cmd)
}

// counts returns how many slices have started and are blocked, and the maximum at a time.
func (h *slowReplan) counts() (began, under, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.began, h.under, h.most
}

// TestReplanBesideRounds: rounds go on while lanes are planned again after Redis's clock was
// set back. There is one replan at a time, and it ends with the dispatcher.
func TestReplanBesideRounds(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	r := startRig(t, 0, limitsOf(perTenant(1)), nil)
	r.enqueue(t, "a", 3)
	var clock redistest.Clock
	options := r.server.Options()
	options.Dialer = clock.Dial
	client := redis.NewUniversalClient(options)
	defer client.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hook := &slowReplan{release: make(chan struct{}), over: ctx.Done()}
	client.AddHook(redistest.OnCommand(hook.on))
	d := r.dispatcher()
	d.redis, d.limits.Redis, d.observer = client, client, r.seen
	d.logger = slog.New(slog.DiscardHandler)
	ended := make(chan struct{})
	go func() {
		d.Run(ctx)
		close(ended)
	}()
	begun := func(n int) {
		t.Helper()
		until(t, "asked anew", func() bool {
			began, _, _ := hook.counts()
			return began == n
		})
	}
	rounds := func() {
		t.Helper()
		r.seen.wait(t, "round", r.seen.outcomes("round")+20)
	}
	rounds()
	clock.Step(-time.Hour)
	begun(1)
	rounds()
	clock.Step(-time.Hour)
	rounds() // which see the second step
	if began, under, most := hook.counts(); began != 1 || under != 1 || most != 1 {
		t.Errorf("%d replans began, %d at a time, while the first one was held up", began, most)
	}
	hook.release <- struct{}{}
	begun(2)
	cancel()
	<-ended
	if _, under, _ := hook.counts(); under != 0 {
		t.Error("the dispatcher ended before its replan")
	}
}

// TestStepBesideUnreadPauses: lanes are planned again also if the round that reports the step cannot read the pauses: no
// other round reports it.
func TestStepBesideUnreadPauses(t *testing.T) {
	t.Parallel()
	d := startRig(t, 0, limitsOf(), nil).dispatcher()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.follow(ctx, roundAnswer{stepped: true, pauses: 1}); err == nil {
		t.Fatal("the pauses were read")
	}
	if got := d.replans.take(); !slices.Equal(got, []string{""}) {
		t.Errorf("planned again: %q; want all", got)
	}
}
