package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
)

// printShards prints how many of 1,000 permits a caller, which takes one at a time, has got when
// it is refused for the first time, and for the tenth time in a row.
func printShards(ctx context.Context, client *redis.Client, out io.Writer) error {
	const permits, rounds = 1000, 20
	fmt.Fprintln(out, "| shards | permits of 1,000 before the first refusal, mean | least | before ten in a row, mean |")
	fmt.Fprintln(out, "|---|---|---|---|")
	for _, shards := range []int{2, 4, 8, 16, 32, 64} {
		limiter, err := throttle.New(client, fmt.Sprint("shards:", shards), throttle.Limit{
			Name: "tb", Algorithm: throttle.TokenBucket, Rate: throttle.Rate{Count: permits, Period: 24 * time.Hour}, Burst: permits, Shards: shards,
		})
		if err != nil {
			return err
		}
		first, least, tenth := 0, permits, 0
		for round := range rounds {
			got, until, inRow := 0, -1, 0
			for inRow < 10 {
				d, err := limiter.Take(ctx, 1, fmt.Sprint(round))
				if err != nil {
					return err
				}
				if d.Allowed {
					got, inRow = got+1, 0
					continue
				}
				if inRow++; until < 0 {
					until = got
				}
			}
			first, least, tenth = first+until, min(least, until), tenth+got
		}
		fmt.Fprintf(out, "| %d | %d | %d | %d |\n", shards, first/rounds, least, tenth/rounds)
	}
	return nil
}
