package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
)

// TestAcksShareRoundTrips: each has its own answer or error, one whose lease is
// over is not sent, and what is no acknowledgement goes its own way.
func TestAcksShareRoundTrips(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	a := newAcks(client)
	client.AddHook(a)
	sent := &pipelines{}
	client.AddHook(sent)

	const note = "redis.call('RPUSH', KEYS[2], ARGV[1]) if ARGV[1] == 'bad' then return redis.error_reply('ERR refused') end return ARGV[1]"
	keys := []string{"asynq:{q}:active", "asynq:{q}:noted"}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	var callers sync.WaitGroup
	tell := func(ctx context.Context, word, answer string, want error) {
		callers.Go(func() {
			reply, err := client.Eval(ctx, note, keys, word).Result()
			if want != nil && !errors.Is(err, want) && fmt.Sprint(err) != fmt.Sprint(want) || want == nil && err != nil {
				t.Errorf("%s: %v, want %v", word, err, want)
			}
			if want == nil && reply != answer {
				t.Errorf("%s: answered %v", word, reply)
			}
		})
	}
	for i := range 200 {
		word := fmt.Sprint(i)
		tell(t.Context(), word, word, nil)
	}
	tell(t.Context(), "bad", "", errors.New("ERR refused"))
	tell(over, "late", "", context.Canceled)
	callers.Wait()
	if n := sent.n; n < 3 || n > 20 {
		t.Errorf("%d round trips for 201 acknowledgements, of which 100 go together", n)
	}
	words := map[string]int{}
	for _, word := range client.LRange(t.Context(), keys[1], 0, -1).Val() {
		words[word]++
	}
	if len(words) != 201 || words["late"] > 0 {
		t.Errorf("%d acknowledgements arrived, late: %d", len(words), words["late"])
	}
	before := sent.n
	if err := client.Eval(t.Context(), "return 1", []string{"asynq:{q}:t:1", keys[0]}).Err(); err != nil || sent.n != before {
		t.Errorf("%v; %d round trips more", err, sent.n-before)
	}
	if err := client.Set(t.Context(), keys[1], "", 0).Err(); err != nil || sent.n != before {
		t.Errorf("%v; %d round trips more", err, sent.n-before)
	}
}

// pipelines counts pipelines.
type pipelines struct{ n int }

func (c *pipelines) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (c *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n++
		return next(ctx, cmds)
	}
}
