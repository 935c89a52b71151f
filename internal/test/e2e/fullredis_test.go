package e2e

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/golden"
	"github.com/headgate/headgate/internal/test/stage"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/operate"
)

// TestFullRedis: one tenant fills Redis, and others do not notice. Their jobs drain to the last one,
// once each, within their limits, and new jobs are accepted again as soon as there is memory.
//
//	go test ./internal/test/e2e -run 'TestFullRedis$' -update
func TestFullRedis(t *testing.T) {
	const tenants, each, rate = 4, 250, 20
	limits := stage.PerTenant("20/s") + "tenants: {heavy: {limits: {webhook: {tenant: {rate: 1/s}}}}}\n"
	stage.Measured(t, limits, func(s *stage.Stage) {
		client, ctx := s.Redis.Client(), s.T.Context()
		first := s.Worker()
		var lines strings.Builder
		for i := range tenants {
			lines.WriteString(s.Jobs(fmt.Sprintf("t%d", i), each, ""))
		}
		s.Bulk(lines.String())

		heavy := &pourer{s: s, client: queue.NewClient(client), stop: make(chan struct{})}
		heavy.running.Go(heavy.pour)
		defer heavy.end()
		s.Until(20*time.Second, "jobs are refused", func() bool { return heavy.refusals() > 0 })
		peak := used(s)
		if peak > 0.8 {
			s.T.Errorf("%.2f of maxmemory is used when jobs are refused", peak)
		}

		other := &filler{s: s, full: make(chan struct{}), stop: make(chan struct{})}
		other.running.Go(other.fill)
		defer other.end()
		<-other.full
		full := time.Now()
		s.Worker()
		first.Signal(syscall.SIGTERM)
		<-first.Done
		s.Until(60*time.Second, "the others' jobs are called", func() bool { return s.Received("/calls", "")-s.Received("/calls", "heavy") >= tenants*each })
		length := time.Since(full)
		other.end()
		if now := used(s); now < 0.95 {
			s.T.Errorf("Redis is not full any more: %.2f", now)
		}

		by := operate.Operator{Actor: "ann", Reason: "test"}
		heavy.end()
		cancelled, err := operate.Apply(ctx, client, "webhook", operate.Cancel, operate.Filter{Tenant: "heavy"}, by, nil)
		if err != nil {
			s.T.Error(err)
		}
		if _, err := operate.Apply(ctx, client, "webhook", operate.DeleteArchived, operate.Filter{Tenant: "heavy"}, by, nil); err != nil {
			s.T.Error(err)
		}
		for i := range other.keys {
			client.Del(ctx, fmt.Sprintf("filler:%d", i))
		}
		s.Until(5*time.Second, "jobs are accepted again", func() bool {
			_, err := heavy.client.Enqueue(ctx, queue.Job{Kind: "webhook", Tenant: "later", Key: "later", Payload: map[string]string{"url": s.Calls + "/"}})
			return err == nil
		})
		s.Wait("later", 1, 5*time.Second)
		s.AllEnd(10 * time.Second)

		calls := s.Log()
		sent := len(stage.Times(calls, stage.OfTenant("heavy")))
		s.Once(calls, tenants*each+sent+1)
		if int64(sent)+cancelled.Jobs != int64(heavy.accepted) {
			s.T.Errorf("%d jobs of the heavy tenant were accepted, %d sent and %d cancelled", heavy.accepted, sent, cancelled.Jobs)
		}
		least := 1.0
		for i := range tenants {
			tenant := fmt.Sprintf("t%d", i)
			at := stage.Times(calls, stage.OfTenant(tenant))
			least = min(least, s.Run.Used(tenant, at, rate, 0.95))
			s.Run.Law(tenant, at, rate, 1)
		}
		s.Run.Law("heavy", stage.Times(calls, stage.OfTenant("heavy")), 1, 1)
		row := fmt.Sprintf("| %d | %d | %.0f%% | %.0fs | %.3f |\n", heavy.accepted, heavy.refusals(), 100*peak, length.Seconds(), least)
		s.T.Log(row)
		if golden.Update() && !s.T.Failed() {
			golden.WritePart(s.T, "../../../docs/security.md", "full redis", "| Jobs of 1 MiB accepted | Refused | Memory used when jobs are refused | At `maxmemory` for | Least use of 20/s by another tenant |\n|---|---|---|---|---|\n"+row)
		}
	}, "--maxmemory", "64mb", "--maxmemory-policy", "noeviction")
}

// used is the part of maxmemory that is used.
func used(s *stage.Stage) float64 {
	s.T.Helper()
	info, err := s.Redis.Client().InfoMap(s.T.Context(), "memory").Result()
	if err != nil {
		s.T.Fatal(err)
	}
	var n, most float64
	if _, err := fmt.Sscan(info["Memory"]["used_memory"]+" "+info["Memory"]["maxmemory"], &n, &most); err != nil {
		s.T.Fatal(err)
	}
	return n / most
}

// filler is another program that does not ask how much of Redis may be used.
type filler struct {
	s       *stage.Stage
	full    chan struct{} // closed when Redis rejects its first key
	keys    int           // to be read after end
	running sync.WaitGroup
	stop    chan struct{}
	ended   sync.Once
}

func (f *filler) fill() {
	reached := sync.OnceFunc(func() { close(f.full) })
	defer reached()
	for {
		err := f.s.Redis.Client().Set(f.s.T.Context(), fmt.Sprintf("filler:%d", f.keys), strings.Repeat("x", 100_000), 0).Err()
		switch {
		case err == nil:
			f.keys++
			continue
		case !redis.IsOOMError(err):
			f.s.T.Errorf("fill: %v", err)
			return
		}
		reached()
		select {
		case <-f.stop:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (f *filler) end() {
	f.ended.Do(func() { close(f.stop) })
	f.running.Wait()
}

// pourer enqueues jobs of 1 MiB for the tenant heavy as fast as they are accepted: half of them for
// now, half for in a year.
type pourer struct {
	s        *stage.Stage
	client   *queue.Client
	accepted int // to be read after end
	running  sync.WaitGroup
	stop     chan struct{}
	ended    sync.Once

	mu      sync.Mutex
	refused int
}

func (p *pourer) pour() {
	body := strings.Repeat("x", 1<<20-200)
	for i := 0; ; i++ {
		job := queue.Job{Kind: "webhook", Tenant: "heavy", Payload: map[string]string{"url": p.s.Calls + "/", "body": body}}
		if i%2 == 1 {
			job.At = time.Now().Add(365 * 24 * time.Hour)
		}
		_, err := p.client.Enqueue(p.s.T.Context(), job)
		wait := time.Duration(0)
		switch {
		case err == nil:
			p.accepted++
		case errors.Is(err, queue.ErrRedisFull):
			p.mu.Lock()
			p.refused++
			p.mu.Unlock()
			wait = time.Second // to encode 1 MiB keeps a core busy
		default:
			p.s.T.Errorf("enqueue: %v", err)
			return
		}
		select {
		case <-p.stop:
			return
		case <-time.After(wait):
		}
	}
}

func (p *pourer) refusals() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

func (p *pourer) end() {
	p.ended.Do(func() { close(p.stop) })
	p.running.Wait()
}
