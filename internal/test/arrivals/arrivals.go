// Package arrivals writes calls of the last day into Redis, as workers keep them.
package arrivals

import (
	"context"
	"encoding/binary"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediskey"
)

// Call is a call without attributes.
type Call struct {
	Tenant string
	Direct bool          // without a job
	Came   time.Time     // when its job came
	Waited time.Duration // until it left; less than 0: it is not the first of its job, and left when it came
	Took   string        // "COST;unit=n;…"; "": one permit
}

// Put writes calls of jobs of the kind "call" as a page of a queue.
func Put(ctx context.Context, client redis.UniversalClient, queue string, calls ...Call) error {
	began := time.Now().Add(-time.Hour).UnixMilli()
	lanes, took := map[string]int{}, map[string]int{}
	name := func(text []byte, of map[string]int, name string) []byte {
		if _, known := of[name]; known {
			return text
		}
		of[name] = len(of)
		return append(binary.AppendUvarint(text, uint64(len(name))), name...)
	}
	at := func(of map[string]int, name string) uint64 {
		if n, known := of[name]; known {
			return uint64(n)
		}
		return uint64(len(of))
	}
	var text []byte
	last := int64(0)
	for _, c := range calls {
		lane := rediskey.Escape(c.Tenant) + ";kind=call"
		if c.Direct {
			lane = " " + lane
		}
		head := at(lanes, lane) << 1
		if c.Took != "" {
			head |= 1
		}
		text = name(binary.AppendUvarint(text, head), lanes, lane)
		left := c.Came.Add(max(0, c.Waited)).UnixMilli()
		text = binary.AppendVarint(text, left-last)
		waited := uint64(0)
		if c.Waited >= 0 {
			waited = uint64(c.Waited.Milliseconds() + 1)
		}
		text = binary.AppendUvarint(text, waited)
		if last = left; c.Took != "" {
			text = name(binary.AppendUvarint(text, at(took, c.Took)), took, c.Took)
		}
	}
	key := "headgate:{" + queue + "}:arrivals"
	if err := client.ZAdd(ctx, key, redis.Z{Score: float64(began), Member: began}).Err(); err != nil {
		return err
	}
	return client.Set(ctx, key+":"+strconv.FormatInt(began, 10), text, 0).Err()
}
