package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/httplimit"
)

// lab lets users try the algorithms of package throttle, each with its own bucket in the live
// Redis.
type lab struct {
	redis   redis.UniversalClient
	benches []*bench
}

// bench is one algorithm in one mode.
type bench struct {
	ID       string `json:"id"`
	Title    string `json:"title"`
	Mode     string `json:"mode"` // "policing": refuses; "shaping": delays
	Rule     string `json:"rule"`
	Burst    int64  `json:"burst,omitempty"`
	Capacity int64  `json:"capacity,omitempty"`
	Describe string `json:"describe"`

	limit   throttle.Limit
	limiter *throttle.Limiter
}

const (
	labPrefix  = "headgate:lab"
	labLongest = time.Minute // longer delays are refused
	labKept    = time.Hour   // longer than any bucket lasts
	maxTaken   = 10
)

func newLab(client redis.UniversalClient) (*lab, error) {
	five := throttle.Rate{Count: 5, Period: 5 * time.Second}
	l := &lab{redis: client, benches: []*bench{
		{ID: "fixed_window", Title: "Fixed window", limit: throttle.Limit{Algorithm: throttle.FixedWindow, Rate: five},
			Describe: "Five in each fixed window of the clock. Cheap, but up to ten can go together at the boundary of two windows."},
		{ID: "sliding_window_log", Title: "Sliding window log", limit: throttle.Limit{Algorithm: throttle.SlidingWindowLog, Rate: five},
			Describe: "Exactly five in any five seconds: the time of each request is stored."},
		{ID: "sliding_window_counter", Title: "Sliding window counter", limit: throttle.Limit{Algorithm: throttle.SlidingWindowCounter, Rate: five},
			Describe: "About five in any five seconds, from two counters: the previous window is weighted by the part that still overlaps."},
		{ID: "token_bucket", Title: "Token bucket", limit: throttle.Limit{Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1), Burst: 5},
			Describe: "One permit is added each second, up to five. A full bucket lets a burst through at once."},
		{ID: "leaky_bucket_policing", Title: "Leaky bucket, policing", limit: throttle.Limit{Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(1), Capacity: 5},
			Describe: "Requests fill a bucket that leaks one per second. Requests that do not fit are refused."},
		{ID: "leaky_bucket_shaping", Title: "Leaky bucket, shaping", Mode: "shaping", limit: throttle.Limit{Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(1), Capacity: 20},
			Describe: "One request leaves each second, never two together, and up to twenty wait for their turn. Headgate's queues send in this way."},
	}}
	for _, b := range l.benches {
		b.limit.Name = b.ID
		b.Rule, b.Burst, b.Capacity = b.limit.Rate.String(), b.limit.Burst, b.limit.Capacity
		b.Mode = cmp.Or(b.Mode, "policing")
		var err error
		if b.limiter, err = throttle.New(client, labPrefix, b.limit); err != nil {
			return nil, fmt.Errorf("lab: %w", err)
		}
	}
	return l, nil
}

func (l *lab) bench(id string) (*bench, error) {
	for _, b := range l.benches {
		if b.ID == id {
			return b, nil
		}
	}
	return nil, newProblem(http.StatusNotFound, codeNotFound, "The lab has no algorithm %.60q.", id)
}

func (a *API) labList(*request) (answer, error) {
	return answer{body: map[string]any{"algorithms": a.lab.benches}}, nil
}

// takenJSON is a limiter's decision.
type takenJSON struct {
	At         moment            `json:"at"`
	Allowed    bool              `json:"allowed"`
	Delay      float64           `json:"delay_seconds,omitempty"`
	Remaining  int64             `json:"remaining"`
	RetryAfter float64           `json:"retry_after_seconds,omitempty"`
	Reset      float64           `json:"reset_seconds,omitempty"`
	Headers    map[string]string `json:"headers"`
}

type takeBody struct {
	N int64 `json:"n"`
}

func (a *API) labTake(r *request) (answer, error) {
	b, err := a.lab.bench(r.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	body, err := decode[takeBody](r)
	if err != nil {
		return answer{}, err
	}
	if body.N < 1 || body.N > maxTaken {
		return answer{}, invalid("n", "%d is not in the range 1 to %d", body.N, maxTaken)
	}
	round, err := a.lab.round(r.Context(), b)
	if err != nil {
		return answer{}, err
	}
	results := []takenJSON{}
	for range body.N {
		taken, err := b.take(r.Context(), round)
		if err != nil {
			return answer{}, err
		}
		results = append(results, taken)
	}
	return answer{body: map[string]any{"results": results}}, nil
}

// take requests one permit.
func (b *bench) take(ctx context.Context, round string) (takenJSON, error) {
	var decision throttle.Decision
	var err error
	if b.Mode == "shaping" {
		var reservation *throttle.Reservation
		if reservation, err = b.limiter.Reserve(ctx, 1, labLongest, round); err == nil {
			decision = reservation.Decision
		}
	} else {
		decision, err = b.limiter.Take(ctx, 1, round)
	}
	if err != nil {
		return takenJSON{}, err
	}
	taken := takenJSON{
		At: moment{time.Now()}, Allowed: decision.Allowed, Delay: decision.Delay.Seconds(), Remaining: decision.Remaining,
		RetryAfter: decision.RetryAfter.Seconds(), Reset: decision.ResetAfter.Seconds(), Headers: map[string]string{},
	}
	if b.Mode == "shaping" {
		taken.Remaining = b.places(decision)
	}
	header := http.Header{}
	httplimit.WriteHeaders(header, decision, b.limit)
	for name, values := range header {
		taken.Headers[name] = strings.Join(values, ", ")
	}
	return taken, nil
}

// places returns the free places in the queue of a shaping limiter, from which requests leave
// one by one.
func (b *bench) places(d throttle.Decision) int64 {
	interval := b.limit.Rate.Period / time.Duration(b.limit.Rate.Count)
	waiting := int64((d.ResetAfter + interval - 1) / interval)
	return max(0, b.limit.Capacity-waiting)
}

// round returns the key of an algorithm's bucket since the last reset. Older buckets
// expire.
func (l *lab) round(ctx context.Context, b *bench) (string, error) {
	round, err := l.redis.Get(ctx, labPrefix+":round:"+b.ID).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return round, err
}

func (a *API) labReset(r *request) (answer, error) {
	b, err := a.lab.bench(r.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	if err := a.lab.redis.Set(r.Context(), labPrefix+":round:"+b.ID, rand.Text(), labKept).Err(); err != nil {
		return answer{}, err
	}
	return answer{body: map[string]bool{"reset": true}}, nil
}

type unshapedJSON struct {
	On       bool   `json:"on"`
	Tenant   string `json:"tenant"`
	Sent     int64  `json:"sent"`
	Rejected int64  `json:"rejected"`
}

func (a *API) labUnshaped(*request) (answer, error) {
	if a.config.Demo == nil {
		return answer{}, newProblem(http.StatusNotFound, codeNotFound, "Only worker dev can bypass limits.")
	}
	on, tenant, sent, rejected := a.config.Demo.Unshaped()
	return answer{body: unshapedJSON{on, tenant, sent, rejected}}, nil
}

type onBody struct {
	On bool `json:"on"`
}

func (a *API) labSetUnshaped(r *request) (answer, error) {
	body, err := decode[onBody](r)
	if err == nil && a.config.Demo != nil {
		a.config.Demo.SetUnshaped(body.On)
	}
	if err != nil {
		return answer{}, err
	}
	return a.labUnshaped(r)
}
