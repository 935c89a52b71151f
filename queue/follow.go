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
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/encryption"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/validation"
)

// parentOf is what a follow-up carries of the job that it follows.
type parentOf struct {
	id, reason string
	result     []byte
	child      string // id of the follow-up, if its id is not made from its Key
}

func (p *parentOf) write(headers map[string]string, keys *encryption.Keys, in encryption.Place) {
	if p == nil {
		return
	}
	headers[asynqwire.HeaderParent] = p.id
	if p.reason != "" {
		headers[asynqwire.HeaderParentError] = p.reason
	}
	if len(p.result) > 0 {
		headers[asynqwire.HeaderParentResult] = base64.StdEncoding.EncodeToString(keys.Encrypt(p.result, in))
	}
}

func (job *Running) readParent(headers map[string]string) {
	job.Parent, job.ParentError = headers[asynqwire.HeaderParent], headers[asynqwire.HeaderParentError]
	job.ParentResult = resultIn(headers)
}

// resultIn returns the result in the headers of a follow-up; nil: there is none.
func resultIn(headers map[string]string) []byte {
	result, err := base64.StdEncoding.DecodeString(headers[asynqwire.HeaderParentResult])
	if err != nil || len(result) == 0 {
		return nil
	}
	return result
}

// callbackBody is the body of a Callback, with the names of the HTTP API. It has no time in it, so that it is the same
// whenever it is sent again.
type callbackBody struct {
	ID      string            `json:"id"`
	Queue   string            `json:"queue"`
	Kind    string            `json:"kind"`
	Tenant  string            `json:"tenant"`
	State   string            `json:"state"` // completed or archived
	Outcome lifecycle.Outcome `json:"outcome"`
	Attempt int               `json:"attempt"`          // that ended the job, or would have been next
	Result  json.RawMessage   `json:"result,omitempty"` // JSON as it is, other text as a string, bytes as base64
	Error   string            `json:"error,omitempty"`
}

func (e end) callback(job *Running) (json.RawMessage, error) {
	body := callbackBody{ID: job.ID, Queue: job.Queue, Kind: job.Kind, Tenant: job.Tenant, State: "completed", Outcome: e.outcome, Attempt: job.Attempt}
	if e.outcome != lifecycle.Done {
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

// nextOf returns the follow-ups of a job that ended which are not known to be enqueued, and the fields of [Job] that
// define them.
func (e end) nextOf(queue string, job *Running) (fields []string, jobs []Job, err error) {
	var next followUps
	if err := json.Unmarshal([]byte(e.next), &next); err != nil {
		return nil, nil, fmt.Errorf("read the follow-ups of job %s: %w", check.Quote(job.ID), err)
	}
	add := func(field string, child Job) {
		if slices.Contains(e.enqueued, field) {
			return
		}
		// Not of the partition, from which the job may move between two tries.
		sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q", partition.QueueOf(queue), job.ID, field, e.times))
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
		add("callback", Job{Kind: CallbackKind, Tenant: job.Tenant, Payload: payload})
	}
	return fields, jobs, nil
}

// follow enqueues the follow-ups of a job that ended, except those that are known to be
// enqueued, and adds to these. If not all of them are enqueued, it returns the worst fate and
// the errors.
func (g *gate) follow(ctx context.Context, job *Running, e *end) (fate, error) {
	if e.next == "" {
		return followed, nil
	}
	fields, jobs, err := e.nextOf(g.queue, job)
	if err != nil {
		return refused, err
	}
	began := g.clock.now()
	if len(fields) > 0 && began.Sub(e.since) > followFor {
		return refused, fmt.Errorf("%s: may have been enqueued and called since %s",
			strings.Join(fields, ", "), e.since.UTC().Format(time.RFC3339))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.Timeout)
	defer cancel()
	worst, errs := followed, []error(nil)
	fails := func(field string, err error) {
		worst, errs = max(worst, fateOf(err)), append(errs, fmt.Errorf("%s: %w", field, err))
	}
	e.silent = nil
	var homes, tried []string
	var now []Job
	for i, child := range jobs {
		home := g.client.routes.lastHome(child)
		if g.client.unanswered.skip(home) {
			fails(fields[i], errUnanswered)
			continue
		}
		homes, tried, now = append(homes, home), append(tried, fields[i]), append(now, child)
	}
	for i, result := range g.client.EnqueueMany(ctx, now) {
		if result.Err == nil {
			e.enqueued = append(e.enqueued, tried[i])
		} else {
			fails(tried[i], result.Err)
		}
		if result.Err != nil && fateOf(result.Err) == unclear {
			e.silent = append(e.silent, homes[i])
		} else {
			g.client.unanswered.note(homes[i], false) // also if it answered that its backlog is full
		}
	}
	err = errors.Join(errs...)
	e.unclear = e.unclear || worst == unclear
	if !e.unclear && !errors.Is(err, ErrNotReplicated) {
		e.since = began // the others are certainly not enqueued
	}
	return worst, err
}

var errUnanswered = errors.New("its Redis does not answer")

// fate is the result of enqueueing follow-ups. A higher value wins over a lower one.
type fate int

const (
	followed fate = iota
	refused       // rejected for good
	later         // rejected for now, such as for a full backlog, or known to the primary alone
	unclear       // Redis did not answer
)

func fateOf(err error) fate {
	if validation.Is(err) || errors.Is(err, ErrConflict) {
		return refused
	}
	if errors.Is(err, ErrNotReplicated) {
		return later
	}
	if passing(err) || errors.Is(err, ErrUnknown) || errors.Is(err, redis.ErrClosed) {
		return unclear
	}
	return later
}

// putAway ends a job whose outcome is marked: it enqueues the follow-ups, and then the job
// goes. If there is no room for a follow-up, the job waits in the retry set, so that it
// does not block the jobs that make room; the same if the node of a follow-up is away, so that it
// blocks no jobs of other nodes. If a follow-up is rejected for good, the job is
// archived with the reason. If the job's call had succeeded, retrying the archived job only
// enqueues its follow-ups again.
func (g *gate) putAway(ctx context.Context, job *Running) verdict {
	var e end
	v := g.followed(ctx, job, &e)
	if v.outcome == lifecycle.Lost {
		return v
	}
	question := job.settled(settleAway)
	if v.outcome != lifecycle.Done {
		question.text = e.followed()
	}
	question.to, question.message = v.place(job, g.clock.now())
	if settled := g.settle(question); !settled.mine && !settled.repeated {
		return lost()
	}
	return v
}

// followed reads the end of a job, enqueues its follow-ups, and returns the verdict on the job.
func (g *gate) followed(ctx context.Context, job *Running, e *end) verdict {
	known, began := false, time.Now()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		fate, err := unclear, error(nil)
		if !known {
			*e, err = g.readEnd(ctx, job.ID)
			known = err == nil
		}
		if known && e.next != "" && e.since.IsZero() {
			e.since = g.clock.now()
			question := job.settled(settleAway)
			question.text = e.followed()
			if settled := g.settle(question); !settled.mine {
				return lost()
			}
			select {
			case <-g.ended:
				return parked() // it may not be written
			default:
			}
		}
		if err == nil {
			fate, err = g.follow(ctx, job, e)
		} else if _, locked := errors.AsType[*lockedError](err); locked {
			fate = later
		}
		if known && fate == unclear && time.Since(began) > time.Second {
			if _, err := g.readEnd(ctx, job.ID); err == nil {
				fate = later // the node of a follow-up does not answer, and that of the job does
				for _, home := range e.silent {
					g.client.unanswered.note(home, true)
				}
			}
		}
		switch fate {
		case followed:
			return e.verdict()
		case refused:
			if !e.unclear {
				e.since = time.Time{} // an operator may retry it at any time
			}
			g.logger.Error("follow-ups were rejected", logkey.Queue, g.queue, logkey.Job, job.ID, logkey.Error, err)
			if e.outcome == lifecycle.Done {
				return archive(lifecycle.Archived, fmt.Errorf("the call was made, but its follow-ups were rejected: %w", err))
			}
			return archive(e.outcome, fmt.Errorf("%w; its follow-ups were rejected: %w", shortened(e.reason), err))
		case later:
			g.logger.Warn("follow-ups cannot be enqueued now; retrying later", logkey.Queue, g.queue, logkey.Job, job.ID, logkey.Error, err)
			pause := followPause/2 + rand.N(followPause)
			return verdict{outcome: lifecycle.Parked, err: &retryError{err: fmt.Errorf("ended as %s; its follow-ups wait: %w", e.outcome, err), after: pause}}
		}
		g.logger.Warn("enqueueing follow-ups failed; retrying", logkey.Queue, g.queue, logkey.Job, job.ID, logkey.Error, err)
		select {
		case <-g.ended:
			return parked() // the worker has stopped; another one goes on
		case <-time.After(wait):
		}
	}
}

// followFor is how long it is certain that the id of a follow-up is still known, with some time for
// clocks that differ.
const followFor = keyRetention - time.Hour

// followPause is the average time that a job waits before its follow-ups are tried again.
var followPause = 10 * time.Second

// shortened cuts a reason to half its maximum, to leave room for another one.
func shortened(reason string) error {
	if len(reason) > check.MaxReason/2 {
		reason = strings.ToValidUTF8(reason[:check.MaxReason/2], "") + "…"
	}
	return errors.New(reason)
}
