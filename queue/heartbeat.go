package queue

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// WorkerInfo is a worker as it last told of itself.
type WorkerInfo struct {
	ID          string          `json:"id"` // of this run of it
	Host        string          `json:"host"`
	PID         int             `json:"pid"`
	Version     string          `json:"version,omitempty"` // of its program: that of the module, or the commit; "": not known
	Started     time.Time       `json:"started"`
	Seen        time.Time       `json:"seen"` // when it told this; both by Redis's clock
	Queues      []string        `json:"queues"`
	Kinds       []string        `json:"kinds"` // that it has handlers for
	Concurrency int             `json:"concurrency"`
	Held        int             `json:"held"`    // jobs in its hands
	Sending     int             `json:"sending"` // of these, calls under way
	Details     json.RawMessage `json:"details,omitempty"`
}

const (
	beatEvery = 5 * time.Second
	beatAgain = time.Second // after one that Redis did not take

	// A worker is gone when it told nothing for this long.
	beatLasts = 3 * beatEvery
)

// MostDetails is how many bytes the Details of a worker may have as JSON.
const MostDetails = 16 << 10

// Each worker tells of itself under a key of its own, which ends by itself. A
// sorted set lists the workers by when they last did; in a Cluster the two lie
// apart, so that nothing but time keeps them together.
const workersKey = "headgate:workers"

func workerKey(id string) string { return "headgate:worker:" + id }

// Workers lists the workers that live, by host, process and ID. One that ended
// is listed no longer; one that died, for up to 15 s.
func Workers(ctx context.Context, client redis.UniversalClient) ([]WorkerInfo, error) {
	fail := func(err error) ([]WorkerInfo, error) { return nil, fmt.Errorf("list the workers: %w", err) }
	ids, err := client.ZRange(ctx, workersKey, 0, -1).Result()
	if err != nil {
		return fail(err)
	}
	var workers []WorkerInfo
	for ids := range slices.Chunk(ids, 100) {
		pipe := client.Pipeline()
		texts := make([]*redis.StringCmd, len(ids))
		for i, id := range ids {
			texts[i] = pipe.Get(ctx, workerKey(id))
		}
		if err := execute(ctx, pipe); err != nil {
			return fail(err)
		}
		for i, text := range texts {
			worker := WorkerInfo{}
			if json.Unmarshal([]byte(text.Val()), &worker) == nil && worker.ID == ids[i] {
				workers = append(workers, worker)
			}
		}
	}
	slices.SortFunc(workers, func(a, b WorkerInfo) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), a.PID-b.PID, strings.Compare(a.ID, b.ID))
	})
	return workers, nil
}

// CountWorkers counts the workers that [Workers] lists, without reading them.
func (in *Inspector) CountWorkers(ctx context.Context) (int64, error) {
	now, err := in.redis.Time(ctx).Result()
	if err != nil {
		return 0, fmt.Errorf("count the workers: %w", err)
	}
	n, err := in.redis.ZCount(ctx, workersKey, "("+strconv.FormatInt(now.Add(-beatLasts).UnixMilli(), 10), "+inf").Result()
	if err != nil {
		return 0, fmt.Errorf("count the workers: %w", err)
	}
	return n, nil
}

// workerOf is the worker that an owner mark on a task names; "" for none.
func workerOf(owner string) string {
	worker, _, _ := strings.Cut(owner, ":")
	return worker
}

// endedWorkers names those workers, of some owner marks, that missed two beats: they
// have ended, as far as anybody can tell. A worker of which Redis does not answer is
// not among them. Leases are renewed with each beat, so when the leases of a dead
// worker have been silent for long enough, so has the worker.
func endedWorkers(ctx context.Context, client redis.UniversalClient, owners []string) map[string]bool {
	pipe := client.Pipeline()
	left := map[string]*redis.DurationCmd{}
	for _, owner := range owners {
		if worker := workerOf(owner); worker != "" && left[worker] == nil {
			left[worker] = pipe.PTTL(ctx, workerKey(worker))
		}
	}
	ended := map[string]bool{}
	if len(left) == 0 {
		return ended
	}
	_, _ = pipe.Exec(ctx) // every command has its own error
	for worker, ttl := range left {
		ended[worker] = ttl.Err() == nil && ttl.Val() <= beatLasts-2*beatEvery
	}
	return ended
}

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

	info    WorkerInfo
	failing bool
	dropped bool                 // the details were too large, and somebody was told
	asked   chan json.RawMessage // the details that were asked for and have not come; nil: none
}

// Run tells until ctx is done, and then that the worker is gone.
func (h *heart) Run(ctx context.Context) {
	h.info.Started = h.clock.now().UTC()
	for ctx.Err() == nil {
		wait := beatEvery
		if h.beat(ctx); h.failing {
			wait = beatAgain
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisTimeout)
	defer cancel()
	pipe := h.redis.Pipeline()
	pipe.Del(last, workerKey(h.info.ID))
	pipe.ZRem(last, workersKey, h.info.ID)
	leaveAsynq(last, pipe, h.info)
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
		h.logger.Warn("the worker cannot tell that it lives; it goes on trying", logError, err)
	}
	h.failing = err != nil
}

func (h *heart) send(ctx context.Context, text []byte, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	began := bootTime()
	pipe := h.redis.Pipeline()
	for queue, live := range h.live {
		renewLeases(ctx, pipe, queue, live)
	}
	tellAsynq(ctx, pipe, h.info, h.live)
	pipe.Set(ctx, workerKey(h.info.ID), text, beatLasts)
	pipe.ZAdd(ctx, workersKey, redis.Z{Score: float64(now.UnixMilli()), Member: h.info.ID})
	// Those of workers that died. One that only was away lists itself again.
	pipe.ZRemRangeByScore(ctx, workersKey, "-inf", strconv.FormatInt(now.Add(-4*beatLasts).UnixMilli(), 10))
	err := execute(ctx, pipe)
	if err == nil {
		h.renewals.note(began)
	}
	return err
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
	if err == nil && len(text) > MostDetails {
		err = fmt.Errorf("%d bytes of JSON are more than %d", len(text), MostDetails)
	}
	if err != nil {
		if !h.dropped {
			h.logger.Warn("the worker's details are left out", logError, err)
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
		info: WorkerInfo{
			ID: id, Host: printable(host, 255), PID: os.Getpid(), Version: programVersion(),
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
