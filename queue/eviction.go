package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const noEviction = "noeviction"

// evictionPolicy asks what this Redis deletes when its memory is full: "" where it
// does not let itself be asked. Of a cluster it is a policy of some primary that
// evicts, if there is one.
func evictionPolicy(ctx context.Context, client redis.UniversalClient) (string, error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return policyOf(ctx, client)
	}
	var mu sync.Mutex
	worst := noEviction
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		policy, err := policyOf(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		if policy != noEviction && (policy != "" || worst == noEviction) {
			worst = policy
		}
		return err
	})
	return worst, err
}

// policyOf asks one server. What it answers is no error, also where it refuses.
func policyOf(ctx context.Context, client redis.UniversalClient) (string, error) {
	info := redis.NewStringCmd(ctx, "info", "memory")
	err := client.Process(ctx, onceCmd{info}) // whoever asks has patience of its own
	if policy := parseInfo(info.Val())["maxmemory_policy"]; policy != "" {
		return policy, nil
	}
	if _, answered := errors.AsType[redis.Error](err); err != nil && !answered {
		return "", err
	}
	config, err := client.ConfigGet(ctx, "maxmemory-policy").Result()
	if _, answered := errors.AsType[redis.Error](err); err != nil && !answered {
		return "", err
	}
	return config["maxmemory-policy"], nil
}

// onceCmd is a command that go-redis does not send again by itself.
type onceCmd struct{ *redis.StringCmd }

func (onceCmd) NoRetry() bool { return true }

// refuseEviction is the error of a policy by which jobs would be lost.
func refuseEviction(policy string) error {
	if policy == "" || policy == noEviction {
		return nil
	}
	return fmt.Errorf("%w (maxmemory-policy %s), and jobs with them: set maxmemory-policy noeviction", ErrEvicts, policy)
}

// fitness lets a producer look at its Redis from time to time.
type fitness struct {
	mu       sync.Mutex
	foundFit time.Time // when it was found fit; while it is not, each call looks
}

// check refuses a Redis that would lose jobs after it accepted them.
func (f *fitness) check(ctx context.Context, client redis.UniversalClient) error {
	f.mu.Lock()
	known := time.Since(f.foundFit) < checkEvery
	f.mu.Unlock()
	if known {
		return nil
	}
	policy, err := evictionPolicy(ctx, client)
	if err == nil {
		err = refuseEviction(policy)
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.foundFit = time.Now()
	f.mu.Unlock()
	return nil
}
