package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/redisscript"
	"github.com/headgate/headgate/internal/version"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/workers"
)

const beatAgain = time.Second // wait after a failed heartbeat

// heart sends the heartbeats of a worker: each one publishes its state and renews the leases
// of all jobs that it runs.
type heart struct {
	redis    redis.UniversalClient
	live     map[string]*liveRuns // by partition
	renewals *renewals
	clock    *redisClock
	capacity *capacity
	sending  *atomic.Int64
	starving map[string]*starvation // by partition
	details  func() any             // nil: none
	logger   *slog.Logger

	info    workers.Info
	starved map[string]time.Duration // sums at the latest beat, by partition
	beaten  time.Duration            // the latest beat, on the boot clock
	failing bool
	dropped bool                 // the latest details were invalid, which was logged
	asked   chan json.RawMessage // receives the details that were asked for; nil: not asked
}

// begin sends the first heartbeat. The worker takes no jobs before that: others would not know who
// serves them.
func (h *heart) begin(ctx context.Context) {
	h.info.Started = h.clock.now().UTC()
	h.beat(ctx)
}

// Run sends further heartbeats until ctx is done, and then removes the worker from Redis.
func (h *heart) Run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := workers.BeatEvery
		if h.failing {
			wait = beatAgain
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
			h.beat(ctx)
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.Timeout)
	defer cancel()
	pipe := h.redis.Pipeline()
	pipe.Del(last, workers.Key(h.info.ID))
	pipe.ZRem(last, workers.ListKey, h.info.ID)
	asynqwire.Leave(last, pipe, h.asynqServer())
	_, _ = pipe.Exec(last) // after an error, the worker's key expires within 15 s
}

func (h *heart) beat(ctx context.Context) {
	now := h.clock.now().UTC()
	h.info.Seen, h.info.Held, h.info.Sending = now, int(h.capacity.held.Load()), int(h.sending.Load())
	h.info.Starved = h.starvedShares()
	h.askDetails()
	text, err := encodeJSON(h.info)
	if err == nil {
		err = h.send(ctx, text, now)
	}
	if err != nil && !h.failing && ctx.Err() == nil {
		h.logger.Warn("heartbeat failed; retrying", logkey.Error, err)
	}
	h.failing = err != nil
}

func (h *heart) send(ctx context.Context, text []byte, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	began := boottime.Now()
	pipe := h.redis.Pipeline()
	shown := make(map[string][]asynqwire.Run, len(h.live))
	for home, live := range h.live {
		renewLeases(ctx, pipe, home, live)
		shown[home] = live.shown(home)
	}
	asynqwire.Tell(ctx, pipe, h.asynqServer(), shown, workers.BeatLasts)
	pipe.Set(ctx, workers.Key(h.info.ID), text, workers.BeatLasts)
	pipe.ZAdd(ctx, workers.ListKey, redis.Z{Score: float64(now.UnixMilli()), Member: h.info.ID})
	// Removes dead workers. One that was only suspended adds itself again.
	pipe.ZRemRangeByScore(ctx, workers.ListKey, "-inf", strconv.FormatInt(now.Add(-4*workers.BeatLasts).UnixMilli(), 10))
	err := redisscript.ExecAnyway(ctx, h.redis, pipe)
	if err == nil {
		h.renewals.note(began)
	}
	return err
}

// starvedShares returns [workers.Info].Starved since the beat before: of a queue in partitions, that of
// the most starved one.
func (h *heart) starvedShares() map[string]float64 {
	shares, sums, now := map[string]float64{}, map[string]time.Duration{}, boottime.Now()
	for home, s := range h.starving {
		sums[home] = s.sum()
		if share := math.Round(100*(sums[home]-h.starved[home]).Seconds()/(now-h.beaten).Seconds()) / 100; share > 0 {
			queue := partition.QueueOf(home)
			shares[queue] = max(shares[queue], min(share, 1))
		}
	}
	h.starved, h.beaten = sums, now
	return shares
}

// asynqServer returns this worker in the form that asynq's tools show.
func (h *heart) asynqServer() asynqwire.Server {
	i := h.info
	return asynqwire.Server{Host: i.Host, PID: i.PID, ID: i.ID, Concurrency: i.Concurrency, Queues: slices.Sorted(maps.Keys(h.live)), Started: i.Started, Held: i.Held}
}

// askDetails updates the details. It waits at most a second for them, because the leases
// must be renewed; a late value is used for a later heartbeat.
func (h *heart) askDetails() {
	if h.details == nil {
		return
	}
	if h.asked == nil {
		asked := make(chan json.RawMessage, 1)
		h.asked = asked
		go func() { asked <- h.detailed() }()
	}
	select {
	case h.info.Details = <-h.asked:
		h.asked = nil
	case <-time.After(time.Second):
	}
}

// detailed returns the value of [Config].Details as JSON; nil if there is none, or if it
// cannot be encoded or is too large.
func (h *heart) detailed() json.RawMessage {
	value := h.details()
	if value == nil {
		return nil
	}
	text, err := encodeJSON(value)
	if err == nil && len(text) > workers.MaxDetails {
		err = fmt.Errorf("%d bytes of JSON; the maximum is %d", len(text), workers.MaxDetails)
	}
	if err != nil {
		if !h.dropped {
			h.logger.Warn("the worker's details are left out", logkey.Error, err)
		}
		h.dropped = true
		return nil
	}
	h.dropped = false
	return text
}

// encodeJSON encodes a value without escaping <, > and &: it is never put unescaped into a
// page.
func encodeJSON(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// newHeart returns the heart of the session.
func (s *session) newHeart() *heart {
	starving := map[string]*starvation{}
	for _, d := range s.dispatchers {
		starving[d.queue] = d.starving
	}
	host, _ := os.Hostname() // "" after an error
	return &heart{
		redis: s.redis, clock: s.clocks[s.queues[0].Queue], capacity: s.capacity, sending: &s.sending, details: s.config.Details, logger: s.logger,
		live: s.live, starving: starving, renewals: s.renewals, beaten: boottime.Now(),
		info: workers.Info{
			ID: s.id, Host: check.Printable(host, 255), PID: os.Getpid(), Version: version.Program(),
			Queues: s.names(), Kinds: s.Kinds(), Concurrency: s.config.Concurrency,
		},
	}
}
