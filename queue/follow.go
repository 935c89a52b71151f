package queue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/validation"
)

// parentOf is what a job that follows another is told of it.
type parentOf struct {
	id, reason string
	result     []byte
	child      string // id of the child, where its Key is not its id
}

func (p *parentOf) write(headers map[string]string) {
	if p == nil {
		return
	}
	headers[asynqwire.HeaderParent] = p.id
	if p.reason != "" {
		headers[asynqwire.HeaderParentError] = p.reason
	}
	if len(p.result) > 0 {
		headers[asynqwire.HeaderParentResult] = base64.StdEncoding.EncodeToString(p.result)
	}
}

func (job *Running) readParent(headers map[string]string) {
	job.Parent, job.ParentError = headers[asynqwire.HeaderParent], headers[asynqwire.HeaderParentError]
	if text := headers[asynqwire.HeaderParentResult]; text != "" {
		job.ParentResult, _ = base64.StdEncoding.DecodeString(text)
	}
}

// callbackBody is what the receiver of a Callback gets. It must not change from
// one sending to the next, so there is no time in it.
type callbackBody struct {
	ID       string            `json:"id"`
	Kind     string            `json:"kind"`
	Tenant   string            `json:"tenant"`
	State    string            `json:"state"` // completed or archived
	Outcome  lifecycle.Outcome `json:"outcome"`
	Attempts int               `json:"attempts"`
	Result   json.RawMessage   `json:"result,omitempty"` // JSON as it is, other text as a string, bytes as base64
	Error    string            `json:"error,omitempty"`
}

func (e end) callback(job *Running) (json.RawMessage, error) {
	body := callbackBody{ID: job.ID, Kind: job.Kind, Tenant: job.Tenant, State: "completed", Outcome: e.outcome, Attempts: job.Attempt}
	switch e.outcome {
	case lifecycle.Done:
	case lifecycle.Expired, lifecycle.Crashed, lifecycle.Cancelled: // not by an attempt that failed
		body.Attempts--
		fallthrough
	default:
		body.State, body.Error = "archived", e.reason
	}
	result := []byte(e.result)
	var err error
	switch {
	case len(result) == 0:
	case json.Valid(result):
		body.Result = result
	case utf8.Valid(result):
		body.Result, err = json.Marshal(e.result)
	default:
		body.Result, err = json.Marshal(result)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(body)
}

// nextOf makes the jobs that follow one that ended, with the fields that named them.
func (e end) nextOf(queue string, job *Running) (fields []string, jobs []Job, err error) {
	var next followUps
	if err := json.Unmarshal([]byte(e.next), &next); err != nil {
		return nil, nil, fmt.Errorf("read what follows job %s: %w", check.Quote(job.ID), err)
	}
	add := func(field string, child Job) {
		sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", queue, job.ID, field, e.times))
		name := "next." + hex.EncodeToString(sum[:16])
		child.Key = cmp.Or(child.Key, name)
		child.Retention = max(child.Retention, keyRetention)
		child.parent = &parentOf{id: job.ID, reason: e.reason, result: []byte(e.result), child: name}
		fields, jobs = append(fields, field), append(jobs, child)
	}
	if e.outcome == lifecycle.Done && next.Success != nil {
		add("on_success", *next.Success.job())
	}
	if e.outcome != lifecycle.Done && next.Failure != nil {
		add("on_failure", *next.Failure.job())
	}
	if next.Callback != "" {
		body, err := e.callback(job)
		if err != nil {
			return nil, nil, err
		}
		payload := map[string]any{"url": next.Callback, "body": body}
		add("callback", Job{Kind: callbackKind, Tenant: job.Tenant, Payload: payload})
	}
	return fields, jobs, nil
}

// follow enqueues what follows a job that ended. It answers how that stands:
// followed, or with the error, refused for good, later, or not known.
func (g *gate) follow(ctx context.Context, job *Running, e end) (fate, error) {
	if e.next == "" {
		return followed, nil
	}
	fields, jobs, err := e.nextOf(g.queue, job)
	if err != nil {
		return refused, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.Timeout)
	defer cancel()
	worst, errs := followed, []error(nil)
	for i, result := range g.client.EnqueueMany(ctx, jobs) {
		if result.Err != nil {
			worst = max(worst, fateOf(result.Err))
			errs = append(errs, fmt.Errorf("%s: %w", fields[i], result.Err))
		}
	}
	return worst, errors.Join(errs...)
}

// fate is how the enqueueing of follow-ups stands, the better first.
type fate int

const (
	followed fate = iota
	refused       // and it will always be
	later         // there is no room for it now
	unclear       // Redis did not answer
)

func fateOf(err error) fate {
	if _, wrong := errors.AsType[*validation.Error](err); wrong || errors.Is(err, ErrConflict) {
		return refused
	}
	if passing(err) || errors.Is(err, ErrUnknown) || errors.Is(err, redis.ErrClosed) {
		return unclear
	}
	return later
}

// putAway ends a job that bears its mark: it enqueues what follows, then the job goes.
// A follow-up for which there is no room sends the job around through the retry set, so
// that it does not stand in the way of those that make room. One that is refused for
// good leaves its job in the archive, with the reason; a job that was done stays so,
// and to run it again only tries again what follows.
func (g *gate) putAway(ctx context.Context, job *Running) verdict {
	v := g.followed(ctx, job)
	question := job.settled(settleAway)
	question.to, question.message = v.place(job, g.clock.now())
	if settled := g.settle(question); !settled.mine && !settled.repeated {
		return lost()
	}
	return v
}

// followed enqueues what follows a job that has ended, and says what becomes of it.
func (g *gate) followed(ctx context.Context, job *Running) verdict {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		e, err := g.readEnd(ctx, job.ID)
		fate := unclear
		if err == nil {
			fate, err = g.follow(ctx, job, e)
		}
		switch fate {
		case followed:
			return e.verdict()
		case refused:
			g.logger.Error("what should follow a job was refused", logkey.Queue, g.queue, logkey.Job, job.ID, logkey.Error, err)
			if e.outcome == lifecycle.Done {
				return archive(lifecycle.Archived, fmt.Errorf("the call was made, but what should follow was refused: %w", err))
			}
			return archive(e.outcome, fmt.Errorf("%w; what should follow was refused: %w", shortened(e.reason), err))
		case later:
			g.logger.Warn("what follows a job must wait", logkey.Queue, g.queue, logkey.Job, job.ID, logkey.Error, err)
			pause := followPause/2 + rand.N(followPause)
			return verdict{outcome: lifecycle.Parked, err: &retryError{err: fmt.Errorf("ended as %s; what follows waits: %w", e.outcome, err), after: pause}}
		}
		g.logger.Warn("redis does not take what follows a job", logkey.Queue, g.queue, logkey.Job, job.ID, logkey.Error, err)
		select {
		case <-g.ended:
			return parked() // nobody is left to tell; the next worker goes on
		case <-time.After(wait):
		}
	}
}

// followPause is about how long a job waits for room for what follows it.
var followPause = 10 * time.Second

// shortened leaves room behind a reason.
func shortened(reason string) error {
	if len(reason) > check.MaxReason/2 {
		reason = strings.ToValidUTF8(reason[:check.MaxReason/2], "") + "…"
	}
	return errors.New(reason)
}
