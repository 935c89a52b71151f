package redistest_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
)

func TestClock(t *testing.T) {
	t.Parallel()
	for name, addr := range map[string]string{
		"a real Redis": redistest.Shared(t).Addr(),
		"an imitation": redistest.Embedded(t).Options().Addr,
	} {
		t.Run(name, func(t *testing.T) {
			var clock redistest.Clock
			client := redis.NewClient(&redis.Options{Addr: addr, Dialer: clock.Dial})
			defer client.Close()
			script := redis.NewScript(`local time = redis.call('TIME')
				redis.call('SET', KEYS[1], ARGV[1])
				return {time[1] * 1000 + math.floor(time[2] / 1000), redis.call('GET', KEYS[1])}`)
			ahead := time.Duration(0)
			for i, step := range []time.Duration{0, time.Hour, -2 * time.Hour, 1500 * time.Millisecond} {
				clock.Step(step)
				ahead += step
				want := func(what string, got time.Time) {
					t.Helper()
					if off := time.Until(got) - ahead; off < -5*time.Second || off > 5*time.Second {
						t.Errorf("step %d: %s is off by %v", i, what, off)
					}
				}
				now, err := client.Time(t.Context()).Result()
				if err != nil {
					t.Fatal(err)
				}
				want("TIME", now)
				for range 2 { // by its text, and by its hash
					reply, err := script.Run(t.Context(), client, []string{redistest.Queue(t)}, "a\r\nb").Slice()
					if err != nil || reply[1] != "a\r\nb" {
						t.Fatal(reply, err)
					}
					want("a script's time", time.UnixMilli(reply[0].(int64)))
				}
				pipe := client.Pipeline()
				first, second := pipe.Time(t.Context()), pipe.Ping(t.Context())
				if _, err := pipe.Exec(t.Context()); err != nil || second.Val() != "PONG" {
					t.Fatal(second, err)
				}
				want("TIME in a pipeline", first.Val())
			}
		})
	}
}

func TestStoppedClock(t *testing.T) {
	t.Parallel()
	var clock redistest.Clock
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr(), Dialer: clock.Dial})
	defer client.Close()
	clock.Stop()
	at := clock.Now().Truncate(time.Microsecond)
	for _, step := range []time.Duration{0, time.Hour, -2 * time.Hour} {
		clock.Step(step)
		at = at.Add(step)
		for range 2 {
			if now, err := client.Time(t.Context()).Result(); err != nil || !now.Equal(at) {
				t.Errorf("%v, %v; want %v", now, err, at)
			}
		}
	}
}
