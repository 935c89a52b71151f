package redisscript

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
)

// asked counts the commands that a client is to send.
type asked struct{ n int }

func (a *asked) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *asked) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error {
		a.n++
		return nil
	}
}

func (a *asked) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestDoneBefore: a script whose context is done before is not sent, so whoever gives up has taken nothing.
func TestDoneBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, count := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), &asked{} // a name would be looked up, and a bubble must not begin that
		defer client.Close()
		client.AddHook(count)
		done, end := context.WithCancel(t.Context())
		end()
		if reply, err := New("return 1").RunUntilDone(done, client, nil); reply != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v; want %v", reply, err, context.Canceled)
		}
		synctest.Wait()
		if count.n > 0 {
			t.Errorf("%d scripts were sent", count.n)
		}
	})
}

// TestHas: a script is known by its hash once it has been used, and before that it is not even linked.
func TestHas(t *testing.T) {
	t.Parallel()
	linked := false
	s := newScript(func() string { linked = true; return "return 1" }).AllowOOM()
	hash := New("return 1\n").Hash()
	if s.Has(hash) || linked {
		t.Error("a script that was not used is known")
	}
	if s.Text() != "return 1" || s.Has(hash) || !s.Has(s.Hash()) {
		t.Error("a script that was used is not known by its hash, or by another one")
	}
	if full := s.tight.Hash(); !s.Has(full) {
		t.Error("its form for a full Redis is not known")
	}
}
