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
	"github.com/headgate/headgate/internal/wait"
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

// HomeOf returns the partition that has a tenant now, and the layout of its queue, which may differ from the given
// one by now. If the tenant's jobs are on their way, or nobody knows it and no partition takes it before the change
// has ended, HomeOf waits for up to [Timeout].
func HomeOf(ctx context.Context, client redis.UniversalClient, l partition.Layout, tenant string) (string, partition.Layout, error) {
	fail := func(err error) (string, partition.Layout, error) {
		return "", l, fmt.Errorf("find the partition of tenant %s: %w", check.Quote(tenant), err)
	}
	for end := time.Now().Add(Timeout); ; {
		homes := l.Homes(tenant)
		if len(homes) == 1 {
			return homes[0], l, nil
		}
		pipe := client.Pipeline()
		sum, states := pipe.HGet(ctx, Key(homes[0], "limits"), SumField), pipe.HMGet(ctx, MovesKey(homes[0]), rediskey.Escape(tenant), WholeQueue)
		if err := Execute(ctx, pipe); err != nil {
			return fail(err)
		}
		text := Texts(states.Val())
		switch {
		case sum.Val() != l.Sum(): // it has ended
		case text[0] == MoveGone:
			return homes[1], l, nil
		case !strings.HasPrefix(text[0], MoveLeft) && (text[0] != "" || text[1] != l.Sum()):
			return homes[0], l, nil
		}
		if time.Now().After(end) {
			return fail(errors.New("its jobs are on their way to another one; try again"))
		}
		if err := wait.For(ctx, moveLook); err != nil {
			return fail(err)
		}
		now, err := ReadLayout(ctx, client, l.Queue)
		if err != nil {
			return fail(err)
		}
		l = now
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
