package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/workers"
)

const beatAgain = time.Second // after one that Redis did not take

// heart tells of a worker while it lives, and renews the leases of all that it runs.
type heart struct {
	redis    redis.UniversalClient
	live     map[string]*liveRuns // by queue
	renewals *renewals
	clock    *redisClock
	capacity *capacity
	sending  *atomic.Int64
	details  func() any // nil: none
	logger   *slog.Logger

	info    workers.Info
	failing bool
	dropped bool                 // the details were too large, and somebody was told
	asked   chan json.RawMessage // the details that were asked for and have not come; nil: none
}

// Run tells until ctx is done, and then that the worker is gone.
func (h *heart) Run(ctx context.Context) {
	h.info.Started = h.clock.now().UTC()
	for ctx.Err() == nil {
		wait := workers.BeatEvery
		if h.beat(ctx); h.failing {
			wait = beatAgain
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.Timeout)
	defer cancel()
	pipe := h.redis.Pipeline()
	pipe.Del(last, workers.Key(h.info.ID))
	pipe.ZRem(last, workers.ListKey, h.info.ID)
	asynqwire.Leave(last, pipe, h.asynqServer())
	_, _ = pipe.Exec(last) // what stays is gone within 15 s
}

func (h *heart) beat(ctx context.Context) {
	now := h.clock.now().UTC()
	h.info.Seen, h.info.Held, h.info.Sending = now, int(h.capacity.held.Load()), int(h.sending.Load())
	h.askDetails()
	text, err := encodeJSON(h.info)
	if err == nil {
		err = h.send(ctx, text, now)
	}
	if err != nil && !h.failing && ctx.Err() == nil {
		h.logger.Warn("the worker cannot tell that it lives; it goes on trying", logkey.Error, err)
	}
	h.failing = err != nil
}

func (h *heart) send(ctx context.Context, text []byte, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	began := boottime.Now()
	pipe := h.redis.Pipeline()
	for queue, live := range h.live {
		renewLeases(ctx, pipe, queue, live)
	}
	shown := make(map[string][]asynqwire.Run, len(h.live))
	for queue, live := range h.live {
		shown[queue] = live.shown()
	}
	asynqwire.Tell(ctx, pipe, h.asynqServer(), shown, workers.BeatLasts)
	pipe.Set(ctx, workers.Key(h.info.ID), text, workers.BeatLasts)
	pipe.ZAdd(ctx, workers.ListKey, redis.Z{Score: float64(now.UnixMilli()), Member: h.info.ID})
	// Those of workers that died. One that only was away lists itself again.
	pipe.ZRemRangeByScore(ctx, workers.ListKey, "-inf", strconv.FormatInt(now.Add(-4*workers.BeatLasts).UnixMilli(), 10))
	err := store.Execute(ctx, pipe)
	if err == nil {
		h.renewals.note(began)
	}
	return err
}

// asynqServer is this worker as asynq's tools show it.
func (h *heart) asynqServer() asynqwire.Server {
	i := h.info
	return asynqwire.Server{Host: i.Host, PID: i.PID, ID: i.ID, Concurrency: i.Concurrency, Queues: i.Queues, Started: i.Started, Held: i.Held}
}

// askDetails takes the details over once they are there: leases do not wait for them
// for longer than a second.
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

// detailed is what [Config].Details says, or nil where that cannot be told.
func (h *heart) detailed() json.RawMessage {
	value := h.details()
	if value == nil {
		return nil
	}
	text, err := encodeJSON(value)
	if err == nil && len(text) > workers.MaxDetails {
		err = fmt.Errorf("%d bytes of JSON are more than %d", len(text), workers.MaxDetails)
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

// encodeJSON leaves <, > and & as they are: nothing here is put into a page as it is.
func encodeJSON(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// newHeart is that of a worker with this ID.
func (w *Worker) newHeart(id string, clock *redisClock, capacity *capacity, sending *atomic.Int64, live map[string]*liveRuns, renewals *renewals) *heart {
	host, _ := os.Hostname() // "": the machine does not say
	return &heart{
		redis: w.redis, clock: clock, capacity: capacity, sending: sending, details: w.config.Details, logger: w.logger,
		live: live, renewals: renewals,
		info: workers.Info{
			ID: id, Host: check.Printable(host, 255), PID: os.Getpid(), Version: programVersion(),
			Queues: w.config.Queues, Kinds: w.Kinds(), Concurrency: w.config.Concurrency,
		},
	}
}

// programVersion is that of the main module, or the commit that it was built from.
func programVersion() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	if build.Main.Version != "" && build.Main.Version != "(devel)" {
		return build.Main.Version
	}
	commit, changed := "", ""
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			commit = setting.Value[:min(len(setting.Value), 12)]
		case "vcs.modified":
			if setting.Value == "true" {
				changed = "+changes"
			}
		}
	}
	if commit == "" {
		return ""
	}
	return commit + changed
}
