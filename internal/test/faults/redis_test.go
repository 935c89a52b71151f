package faults

import (
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ofRedis are faults of the Redis server.
var ofRedis = []scenario{
	{
		name: "away", fault: "Redis answers nobody for 8 s while 300 calls end",
		latency: 3 * time.Second, jobs: 2000,
		strike: func(x *show) {
			x.Redis.Pause()
			time.Sleep(8 * time.Second) // the fault itself
			x.Redis.Resume()
		},
	},
	{
		name: "restart", fault: "Redis is killed and restarted, `appendfsync always`", quick: true,
		jobs: 600, redis: []string{"--appendonly", "yes", "--appendfsync", "always"},
		strike: func(x *show) {
			x.Redis.Kill()
			x.Redis.Restart()
		},
		promise: promise{used: 0.5},
	},
	{
		name: "wiped", fault: "Redis is killed and restarted without its data",
		jobs: 1500,
		strike: func(x *show) {
			x.Redis.Kill()
			x.Redis.Restart()
			x.heal()
			// The workers publish their limits file again. Producers send again what they are not sure of, with the same keys.
			x.Until(15*time.Second, "the limits are published again", func() bool {
				return x.Redis.Client().Exists(x.T.Context(), "headgate:{webhook}:limits").Val() == 1
			})
			x.sendAgain(tenant, x.jobs)
		},
		promise: promise{wiped: true, twice: 800, flows: 15 * time.Second, used: 0.25},
	},
	{
		name: "full", fault: "Redis is at `maxmemory` for 8 s",
		jobs: 1500, redis: []string{"--maxmemory", "32mb", "--maxmemory-policy", "noeviction"},
		strike: func(x *show) {
			keys := x.fill()
			time.Sleep(8 * time.Second) // the fault itself
			for i := range keys {
				x.Redis.Client().Del(x.T.Context(), fmt.Sprint("filler:", i))
			}
		},
		promise: promise{used: 0.9},
	},
	{
		name: "stalls", fault: "Redis stalls for 1 s every 10 s, three times",
		jobs: 3500,
		strike: func(x *show) {
			for range 3 {
				x.Redis.Pause()
				time.Sleep(time.Second) // the fault itself
				x.Redis.Resume()
				x.heal()
				time.Sleep(9 * time.Second)
			}
		},
		promise: promise{used: 0.8},
	},
	{
		name: "script-flush", fault: "SCRIPT FLUSH ten times a second for 10 s",
		jobs: 1500,
		strike: func(x *show) {
			for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				if err := x.Redis.Client().ScriptFlush(x.T.Context()).Err(); err != nil {
					x.T.Error(err)
				}
			}
		},
		promise: promise{used: 0.8}, // each script is sent again with its text
	},
	{
		name: "script-kill", fault: "another program's endless script blocks Redis for 3 s and is killed, three times",
		jobs: 3000, redis: []string{"--busy-reply-threshold", "100"},
		strike: func(x *show) {
			client, ctx := x.Redis.Client(), x.T.Context()
			for range 3 {
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					client.Conn().Eval(ctx, "while true do end", nil)
				}()
				time.Sleep(3 * time.Second) // the fault itself
				x.Until(5*time.Second, "the script is killed", func() bool { return client.ScriptKill(ctx).Err() == nil })
				x.heal()
				<-ended
				time.Sleep(2 * time.Second)
			}
		},
		promise: promise{used: 0.25},
	},
}

// fill writes keys until Redis has no memory left, and returns how many.
func (x *show) fill() (keys int) {
	x.T.Helper()
	size := 100_000
	for {
		err := x.Redis.Client().Set(x.T.Context(), fmt.Sprint("filler:", keys), strings.Repeat("x", size), 0).Err()
		switch {
		case err == nil:
			keys++
		case !redis.IsOOMError(err):
			x.T.Fatal(err)
		case size < 200:
			return keys
		default:
			size /= 2
		}
	}
}
