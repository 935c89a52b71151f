package redistest

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestRelay(t *testing.T) {
	t.Parallel()
	server := Start(t)
	relay := server.Relay(nil, func(script string) string { return "named " + script })
	options, err := redis.ParseURL(relay.URL())
	if err != nil {
		t.Fatal(err)
	}
	options.MaxRetries = -1
	client, ctx := redis.NewClient(options), t.Context()
	t.Cleanup(func() { client.Close() })
	script := redis.NewScript("return redis.call('INCR', KEYS[1])")
	if n, err := script.Run(ctx, client, []string{"a"}).Int(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	kind := "named return redis.call('INCR', KEYS[1])"
	relay.Lose(func(k string) bool { return k == kind })
	if err := client.Set(ctx, "b", 1, 0).Err(); err != nil {
		t.Errorf("another command: %v", err)
	}
	if err := script.Run(ctx, client, []string{"a"}).Err(); err == nil {
		t.Error("no reply was lost")
	}
	relay.Lose(nil)
	if n, err := client.Get(ctx, "a").Int(); n != 2 || err != nil {
		t.Errorf("the command whose reply was lost: %d %v", n, err)
	}
	if relay.Lost() != 1 || relay.Seen()[kind] != 2 || relay.Seen()["script"] != 1 { // not known by its hash, sent, and lost
		t.Errorf("%d lost, seen %v", relay.Lost(), relay.Seen())
	}
	relay.Delay(30 * time.Millisecond)
	began := time.Now()
	if err := client.Ping(ctx).Err(); err != nil || time.Since(began) < 30*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	server.Kill()
	if client.Ping(ctx).Err() == nil {
		t.Error("a dead server answers")
	}
	server.Restart()
	if err := client.Ping(ctx).Err(); err != nil {
		t.Error(err)
	}
}
