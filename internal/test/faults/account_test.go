package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/queue"
)

// producer enqueues a job every now and then, also during the fault, and remembers the answers.
type producer struct {
	client  *queue.Client
	redis   redis.UniversalClient
	url     string // of the receiver
	stop    chan struct{}
	running sync.WaitGroup

	// To be read after end.
	accepted []string             // ids
	asked    map[string]time.Time // when the request that was accepted began, by id
	unknown  []string             // ids of jobs that were not acknowledged until the end
}

const pouredPerSecond = 20

func (x *show) produce() *producer {
	x.T.Helper()
	options, err := queue.ParseRedisURL(x.URL)
	if err != nil {
		x.T.Fatal(err)
	}
	p := &producer{redis: redis.NewUniversalClient(options), url: x.Calls, stop: make(chan struct{}), asked: map[string]time.Time{}}
	p.client = queue.NewClient(p.redis)
	p.running.Go(p.pour)
	return p
}

func (p *producer) pour() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ticks := time.NewTicker(time.Second / pouredPerSecond)
	defer ticks.Stop()
	for i := 0; ; i++ {
		key := fmt.Sprintf("live-%d", i)
		// The same key again after an error, as every producer should do, for as long as it takes.
		for {
			asked := time.Now()
			_, err := p.client.Enqueue(ctx, queue.Job{Kind: "webhook", Tenant: tenant, Key: key, Payload: map[string]any{"url": p.url + "/", "body": map[string]int{"n": i}}})
			if err == nil {
				p.accepted = append(p.accepted, tenant+":"+key)
				p.asked[tenant+":"+key] = asked
				break
			}
			select {
			case <-p.stop:
				p.unknown = append(p.unknown, tenant+":"+key)
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
		select {
		case <-p.stop:
			return
		case <-ticks.C:
		}
	}
}

func (p *producer) end() {
	close(p.stop)
	p.running.Wait()
	_ = p.redis.Close()
}

// account says what became of every job.
type account struct {
	acknowledged int
	again        map[string][]sandbox.Call // jobs that were called more than once, with all calls
	elsewhere    map[string][]string       // jobs that were not called, by their state in Redis
	lost         []string                  // jobs that were acknowledged and are nowhere
	strange      []string                  // calls of jobs that nobody sent
	keys         []string                  // jobs that were called with different idempotency keys
}

// settleAccount compares the acknowledged jobs, and those whose producer got no answer, with the
// calls that the receiver recorded and with Redis.
func settleAccount(ctx context.Context, client redis.UniversalClient, acknowledged, unknown []string, calls []sandbox.Call) (account, error) {
	a := account{acknowledged: len(acknowledged), again: map[string][]sandbox.Call{}, elsewhere: map[string][]string{}}
	called := map[string][]sandbox.Call{}
	for _, call := range calls {
		called[call.Job] = append(called[call.Job], call)
	}
	known := map[string]bool{}
	for _, id := range slices.Concat(acknowledged, unknown) {
		known[id] = true
	}
	for id, of := range called {
		if !known[id] {
			a.strange = append(a.strange, id)
		}
		if len(of) > 1 {
			a.again[id] = of
		}
		for _, call := range of {
			if call.Key != of[0].Key || call.Key == "" {
				a.keys = append(a.keys, id)
				break
			}
		}
	}
	missing := slices.DeleteFunc(slices.Clone(acknowledged), func(id string) bool { return len(called[id]) > 0 })
	for chunk := range slices.Chunk(missing, 1000) {
		states, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, id := range chunk {
				pipe.HGet(ctx, "asynq:{webhook}:t:"+id, "state")
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return a, err
		}
		for i, answer := range states {
			if state := answer.(*redis.StringCmd).Val(); state != "" {
				a.elsewhere[state] = append(a.elsewhere[state], chunk[i])
			} else {
				a.lost = append(a.lost, chunk[i])
			}
		}
	}
	return a, nil
}
