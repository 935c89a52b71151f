package redistest_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

func TestWire(t *testing.T) {
	t.Parallel()
	var wire redistest.Wire
	key := redistest.Queue(t)
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr(), Dialer: wire.Dial, MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	incr := func(want int64) {
		t.Helper()
		if n, err := client.Incr(t.Context(), key).Result(); n != want || err != nil {
			t.Fatalf("incr = %d, %v; want %d", n, err, want)
		}
	}
	incr(1)
	wire.LoseReply(key)
	if err := client.Ping(t.Context()).Err(); err != nil || wire.Lost() != 0 {
		t.Errorf("another command's reply: %v, %d lost", err, wire.Lost())
	}
	if n, err := client.Incr(t.Context(), key).Result(); err == nil || wire.Lost() != 1 {
		t.Errorf("incr = %d, %d lost; want its reply lost", n, wire.Lost())
	}
	incr(3) // the server did what the lost reply was about

	wire.Cut()
	if n, err := client.Incr(t.Context(), key).Result(); err == nil {
		t.Errorf("incr = %d over a wire that is cut", n)
	}
	wire.Mend()
	incr(4)
}
