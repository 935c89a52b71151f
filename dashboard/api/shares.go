package api

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/fanout"
	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue/inspect"
)

const (
	shareEvery = 10 * time.Second
	shareLen   = 60 // samples: ten minutes
	sharePart  = 100
	shareKept  = 50 // tenants of a sample whose calls are kept apart
	shareShown = 6  // tenants of an answer
)

// shares knows who made the calls of each queue in the last ten minutes. Redis counts the calls of
// each tenant that succeeded. This process reads the counts every 10 s, or less often where
// reading them for very many tenants would take more than a hundredth of the time.
type shares struct {
	api *API

	mu     sync.Mutex
	queues map[string]*usage
}

// usage is who used one queue.
type usage struct {
	due     time.Time // for the next reading, by this process's clock
	at      time.Time // of the latest reading, by the clock of Redis
	calls   map[string]int64
	samples []sample
}

// sample has the calls between two readings.
type sample struct {
	from, to time.Time
	calls    map[string]int64 // of the tenants with the most
	total    int64
}

func (s *shares) run(ctx context.Context) {
	s.read(ctx)
	for wait.For(ctx, shareEvery) == nil {
		s.read(ctx)
	}
}

// read reads the queues that are due. A queue that cannot be read is read again the next time.
func (s *shares) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, maxAnswerTime)
	defer cancel()
	names, err := inspect.Queues(ctx, s.api.config.Redis)
	if err != nil {
		return
	}
	s.mu.Lock()
	due := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		u := s.queues[name]
		return u != nil && time.Now().Before(u.due)
	})
	s.mu.Unlock()
	type reading struct {
		at    time.Time
		calls map[string]int64
		took  time.Duration
	}
	read, errs := fanout.Ask(ctx, maxAnswerTime, due, func(ctx context.Context, name string) (r reading, err error) {
		began := time.Now()
		r.at, r.calls, err = inspect.Completed(ctx, s.api.config.Redis, name)
		r.took = time.Since(began)
		return r, err
	})
	for i, name := range due {
		if errs[i] == nil {
			s.add(name, read[i].at, read[i].calls, time.Now().Add(sharePart*read[i].took-shareEvery/2))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.queues, func(name string, _ *usage) bool { return !slices.Contains(names, name) })
}

// add records a reading of a queue.
func (s *shares) add(name string, at time.Time, calls map[string]int64, due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.queues[name]
	if u == nil {
		u = &usage{}
		s.queues[name] = u
	}
	if u.calls != nil && at.After(u.at) {
		u.samples = append(u.samples, sampleOf(u, at, calls))
	}
	u.at, u.calls, u.due = at, calls, due
	u.samples = slices.DeleteFunc(u.samples, func(s sample) bool { return at.Sub(s.from) > shareLen*shareEvery+shareEvery/2 })
}

func sampleOf(u *usage, at time.Time, calls map[string]int64) sample {
	one := sample{from: u.at, to: at, calls: map[string]int64{}}
	for tenant, n := range calls {
		if n -= u.calls[tenant]; n > 0 { // fewer than before: Redis lost its state
			one.calls[tenant], one.total = n, one.total+n
		}
	}
	if len(one.calls) > shareKept {
		for _, tenant := range most(one.calls)[shareKept:] {
			delete(one.calls, tenant)
		}
	}
	return one
}

// most returns the tenants in order, those with the most calls first.
func most(calls map[string]int64) []string {
	return slices.SortedFunc(maps.Keys(calls), func(a, b string) int {
		return cmp.Or(cmp.Compare(calls[b], calls[a]), strings.Compare(a, b))
	})
}

// sharesJSON is who used a queue. The lists have one number for each of Times.
type sharesJSON struct {
	Queue   string      `json:"queue"`
	From    *moment     `json:"from,omitempty"` // when the first of them began; omitted: nothing was measured yet
	Times   []moment    `json:"times"`          // when each period ended, oldest first
	Tenants []shareJSON `json:"tenants"`        // those with the most calls
	Others  []calls     `json:"others"`         // successful calls per second of all others
}

type shareJSON struct {
	Tenant    string  `json:"tenant"`
	Share     float64 `json:"share"` // of all successful calls, 0 to 1
	Sent      calls   `json:"sent_per_second"`
	PerSecond []calls `json:"per_second"`
}

// of returns who used a queue.
func (s *shares) of(name string) sharesJSON {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := sharesJSON{Queue: name, Times: []moment{}, Tenants: []shareJSON{}, Others: []calls{}}
	u := s.queues[name]
	if u == nil || len(u.samples) == 0 {
		return out
	}
	first, last := u.samples[0].from, u.samples[len(u.samples)-1].to
	sums, total := map[string]int64{}, int64(0)
	for _, one := range u.samples {
		total += one.total
		for tenant, n := range one.calls {
			sums[tenant] += n
		}
	}
	shown := most(sums)
	shown = shown[:min(len(shown), shareShown)]
	for _, tenant := range shown {
		out.Tenants = append(out.Tenants, shareJSON{
			tenant, float64(sums[tenant]) / float64(total), calls(float64(sums[tenant]) / last.Sub(first).Seconds()), []calls{},
		})
	}
	out.From = at(first)
	for _, one := range u.samples {
		seconds, others := one.to.Sub(one.from).Seconds(), one.total
		for i, tenant := range shown {
			out.Tenants[i].PerSecond = append(out.Tenants[i].PerSecond, calls(float64(one.calls[tenant])/seconds))
			others -= one.calls[tenant]
		}
		out.Times, out.Others = append(out.Times, moment{one.to}), append(out.Others, calls(float64(others)/seconds))
	}
	return out
}

// sharesOf serves who used a queue in the last ten minutes.
func (a *API) sharesOf(r *request) (answer, error) {
	if err := a.thereIs(r); err != nil {
		return answer{}, err
	}
	return answer{body: a.shares.of(r.PathValue("q"))}, nil
}
