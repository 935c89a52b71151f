package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/coalesce"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
)

// crowd is concurrent calls of Enqueue that wait to share a request.
type crowd struct {
	*rig
	client  *Client
	tries   *tries
	results []Result // of those that gathered
	cancel  []context.CancelFunc
	done    []chan struct{} // each call, when it returned
	all     sync.WaitGroup  // those under way, too
	release func()
}

// gather makes the maximum number of calls in flight, which wait for release, and then a
// call for each job, which wait to share a request. send sends their requests; its argument
// is the number of the try, from 1 on.
func gather(t *testing.T, r *rig, jobs []Job, send func(try int, send func() error) error) *crowd {
	t.Helper()
	loaded(t, r)
	released := make(chan struct{})
	c := &crowd{rig: r, results: make([]Result, len(jobs)), release: sync.OnceFunc(func() { close(released) })}
	c.client, c.tries = producer(t, r.server, func(try int, sent func() error) error {
		if try <= coalesce.MaxFlights {
			<-released
			return sent()
		}
		return send(try-coalesce.MaxFlights, sent)
	})
	t.Cleanup(func() { c.release(); c.all.Wait() })
	for range coalesce.MaxFlights {
		c.all.Go(func() {
			if _, err := c.client.Enqueue(t.Context(), Job{Kind: "call", Queue: r.queue, Tenant: "first", Payload: json.RawMessage(`{}`)}); err != nil {
				t.Error(err)
			}
		})
	}
	until(t, "as many as may be are under way", func() bool {
		c.tries.mu.Lock()
		defer c.tries.mu.Unlock()
		return c.tries.n == coalesce.MaxFlights
	})
	for i, job := range jobs {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		c.cancel, c.done = append(c.cancel, cancel), append(c.done, done)
		job.Kind, job.Queue, job.Payload = "call", r.queue, json.RawMessage(fmt.Sprint(i))
		c.all.Go(func() {
			defer close(done)
			receipt, err := c.client.Enqueue(ctx, job)
			c.results[i] = Result{receipt, err}
		})
		until(t, "it has gathered", func() bool {
			_, waiting := c.client.sharing(place{home: r.queue}).Pending()
			return waiting == i+1
		})
	}
	return c
}

// waits returns the number of waiting jobs of a tenant.
func (c *crowd) waits(t *testing.T, tenant string) int64 {
	t.Helper()
	return c.server.Client().ZCard(t.Context(), asynqwire.Key(c.queue, "g:"+tenant+";kind=call")).Val()
}

// TestConcurrentEnqueuesShareRequests: calls that come while others are in flight share
// requests of up to a hundred jobs. Each call gets its own answer.
func TestConcurrentEnqueuesShareRequests(t *testing.T) {
	t.Parallel()
	jobs := make([]Job, maxBatch+20)
	for i := range jobs {
		jobs[i].Tenant = fmt.Sprint("t", i)
	}
	jobs[3].Tenant, jobs[3].Key = "a", "k"
	jobs[7].Tenant, jobs[7].Key = "a", "k" // with another payload
	c := gather(t, startRig(t, 1, limitsOf(), nil), jobs, func(_ int, send func() error) error { return send() })
	c.release()
	c.all.Wait()
	ids := map[string]bool{}
	for i, result := range c.results {
		switch {
		case i == 7:
			if !errors.Is(result.Err, ErrConflict) {
				t.Errorf("job %d: %v; want ErrConflict", i, result.Err)
			}
		case result.Err != nil || result.Existing || ids[result.ID]:
			t.Errorf("job %d: %+v", i, result)
		case c.waits(t, jobs[i].Tenant) != 1:
			t.Errorf("job %d: %d of its tenant wait", i, c.waits(t, jobs[i].Tenant))
		}
		ids[result.ID] = true
	}
	if sent := c.tries.n - coalesce.MaxFlights; sent != 2 {
		t.Errorf("%d requests for %d jobs; want 2", sent, len(jobs))
	}
}

// TestGatheredCallersLeave: the job of a caller whose context ends before it was sent is not
// enqueued, and the error says so.
func TestGatheredCallersLeave(t *testing.T) {
	t.Parallel()
	c := gather(t, startRig(t, 1, limitsOf(), nil), []Job{{Tenant: "stays"}, {Tenant: "leaves"}, {Tenant: "stays"}},
		func(_ int, send func() error) error { return send() })
	c.cancel[1]()
	<-c.done[1]
	c.release()
	c.all.Wait()
	if err := c.results[1].Err; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "certainly not enqueued") {
		t.Errorf("the caller that left: %v", err)
	}
	if c.results[0].Err != nil || c.results[2].Err != nil || c.waits(t, "stays") != 2 || c.waits(t, "leaves") != 0 {
		t.Errorf("%+v; %d and %d wait", c.results, c.waits(t, "stays"), c.waits(t, "leaves"))
	}
}

// TestCallerLeavesAfterTheRequest: a caller whose context ends while its job is being sent
// gets ErrUnknown.
func TestCallerLeavesAfterTheRequest(t *testing.T) {
	t.Parallel()
	sent, answer := make(chan struct{}), make(chan struct{})
	c := gather(t, startRig(t, 1, limitsOf(), nil), []Job{{Tenant: "stays"}, {Tenant: "leaves"}}, func(_ int, send func() error) error {
		close(sent)
		<-answer
		return send()
	})
	c.release()
	<-sent
	c.cancel[1]()
	<-c.done[1]
	close(answer)
	c.all.Wait()
	if err := c.results[1].Err; !errors.Is(err, ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that left: %v", err)
	}
	if c.results[0].Err != nil || c.waits(t, "stays") != 1 {
		t.Errorf("the one that stayed: %+v", c.results[0])
	}
}

// TestLostReplyOfASharedRequest: after a lost reply each caller tries again, and each job is
// enqueued once, although it was done in between.
func TestLostReplyOfASharedRequest(t *testing.T) {
	redistest.Slow(t) // here, because the worker starts in another goroutine
	t.Parallel()
	const jobs = 5
	r := startRig(t, jobs+coalesce.MaxFlights, limitsOf(), nil)
	c := gather(t, r, []Job{{Tenant: "a"}, {Tenant: "b"}, {Tenant: "b"}, {Tenant: "c"}, {Tenant: "d"}}, func(try int, send func() error) error {
		if err := send(); err != nil || try > 1 {
			return err
		}
		r.run(t)
		r.gone(t, jobs+coalesce.MaxFlights)
		return io.EOF
	})
	c.release()
	c.all.Wait()
	ids := map[string]bool{}
	for i, result := range c.results {
		if result.Err != nil || result.Existing || ids[result.ID] {
			t.Errorf("job %d: %+v; want the receipt whose reply was lost", i, result)
		}
		ids[result.ID] = true
	}
	r.stop()
	states := r.states(t)
	if left := states["aggregating"] + states["pending"] + states["active"]; left != 0 || len(r.jobs) != jobs+coalesce.MaxFlights || r.total != jobs+coalesce.MaxFlights {
		t.Errorf("%d calls of %d jobs, and %d are left; want one of each of %d", r.total, len(r.jobs), left, jobs+coalesce.MaxFlights)
	}
}

// TestRefusedSharedRequest: after a shared request that certainly had no effect, each caller
// tries again alone. So no caller enqueues the job of another one that gives up.
func TestRefusedSharedRequest(t *testing.T) {
	t.Parallel()
	refused := make(chan struct{})
	var c *crowd
	c = gather(t, startRig(t, 1, limitsOf(), nil), []Job{{Tenant: "stays"}, {Tenant: "leaves"}}, func(try int, send func() error) error {
		if try == 1 {
			c.cancel[1]()
			close(refused)
			return redis.ErrPoolTimeout // one that passes, before anything was sent
		}
		return send()
	})
	c.release()
	<-refused
	c.all.Wait()
	if err := c.results[1].Err; err == nil {
		t.Errorf("the caller that left has a receipt: %+v", c.results[1])
	}
	if c.results[0].Err != nil || c.waits(t, "stays") != 1 || c.waits(t, "leaves") != 0 {
		t.Errorf("%+v; %d of the one that stayed wait, %d of the one that left", c.results[0], c.waits(t, "stays"), c.waits(t, "leaves"))
	}
}
