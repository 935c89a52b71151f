package store

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Each node of a Cluster has a clock of its own, and a client asks any of them for the time, also one
// that does not answer. These functions ask the node that has a key.

// Time returns the time of the Redis that has a key.
func Time(ctx context.Context, client redis.UniversalClient, key string) (time.Time, error) {
	node := redis.Cmdable(client)
	if cluster, ok := client.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return time.Time{}, err
		}
		node = master
	}
	return node.Time(ctx).Result()
}

// Clock is the time of the Redis that has a key, which is read in a pipeline.
type Clock struct {
	time   *redis.TimeCmd
	script *redis.Cmd // in a Cluster: commands without a key go to any node
}

// AddTime adds the question for the time to a pipeline of the client.
func AddTime(ctx context.Context, pipe redis.Pipeliner, client redis.Cmdable, key string) Clock {
	if _, ok := client.(*redis.ClusterClient); !ok {
		return Clock{time: pipe.Time(ctx)}
	}
	return Clock{script: pipe.Eval(ctx, "return redis.call('TIME')", []string{key})}
}

// Val returns the time once the pipeline was sent; zero after an error.
func (c Clock) Val() time.Time {
	if c.script == nil {
		return c.time.Val()
	}
	words, err := c.script.StringSlice()
	if err != nil || len(words) != 2 {
		return time.Time{}
	}
	seconds, err1 := strconv.ParseInt(words[0], 10, 64)
	micros, err2 := strconv.ParseInt(words[1], 10, 64)
	if err1 != nil || err2 != nil {
		return time.Time{}
	}
	return time.Unix(seconds, micros*1000)
}
