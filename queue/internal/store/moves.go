package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
)

// The states of a tenant that moves between partitions, see move.lua. A token follows MoveLeft and MoveComes.
const (
	MoveStop  = "stop"
	MoveLeft  = "left "
	MoveGone  = "gone"
	MoveComes = "comes "
	MoveHere  = "here"
)

// MovesKey is the key of the hash with the states of tenants that move.
func MovesKey(home string) string { return Key(home, "moves") }

const moveLook = 20 * time.Millisecond

// HomeOf returns the partition that has a tenant now. If its jobs are on their way to another one, it waits
// until they have arrived, for up to [Timeout].
func HomeOf(ctx context.Context, client redis.UniversalClient, l partition.Layout, tenant string) (string, error) {
	homes := l.Homes(tenant)
	if len(homes) == 1 {
		return homes[0], nil
	}
	for end := time.Now().Add(Timeout); ; {
		state, err := client.HGet(ctx, MovesKey(homes[0]), rediskey.Escape(tenant)).Result()
		switch {
		case err != nil && !errors.Is(err, redis.Nil):
			return "", fmt.Errorf("find the partition of tenant %s: %w", check.Quote(tenant), err)
		case state == MoveGone:
			return homes[1], nil
		case !strings.HasPrefix(state, MoveLeft):
			return homes[0], nil
		case time.Now().After(end):
			return "", fmt.Errorf("tenant %s moves to another partition of queue %s; try again", check.Quote(tenant), check.Quote(l.Queue))
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(moveLook):
		}
	}
}

// IsAt reports whether a partition has a tenant, whose state there is given; "" for none. Between its partitions
// it counts as in the one where it arrives.
func IsAt(l partition.Layout, home, tenant, state string) bool {
	homes := l.Homes(tenant)
	switch {
	case len(homes) == 1:
		return homes[0] == home
	case homes[0] == home:
		return state != MoveGone && !strings.HasPrefix(state, MoveLeft)
	}
	return homes[1] == home && (state == MoveHere || strings.HasPrefix(state, MoveComes))
}
