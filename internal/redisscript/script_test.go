package redisscript

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestDoneBefore: a script whose context is done before is not sent, so whoever gives up has taken nothing.
func TestDoneBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // a name would be looked up, and a bubble must not begin that
		defer client.Close()
		sent := 0
		client.AddHook(redistest.OnCommand(func(context.Context, redis.Cmder, redis.ProcessHook) error {
			sent++
			return nil
		}))
		done, end := context.WithCancel(t.Context())
		end()
		if reply, err := New("return 1").RunUntilDone(done, client, nil); reply != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v; want %v", reply, err, context.Canceled)
		}
		synctest.Wait()
		if sent > 0 {
			t.Errorf("%d scripts were sent", sent)
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
