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
	"net/url"
	"strconv"
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

// What follows a job is stored with it (hash field hg_next) and enqueued when it
// ended: after its mark was written, and before it goes. The keys of the
// jobs that follow are made from the job's id, so that whatever is repeated
// (after a crash, a lost reply, a second delivery) finds them there.

const (
	maxChained   = 8
	maxNextBytes = 256 << 10
	maxCallback  = 8 << 10
	callbackKind = "webhook"
)

// followUps is what stands in hg_next.
type followUps struct {
	Success  *nextJob `json:",omitzero"`
	Failure  *nextJob `json:",omitzero"`
	Callback string   `json:",omitzero"`
}

// nextJob is a job as JSON, with all its fields, those of tomorrow too.
type nextJob struct {
	jobFields
	Payload   nextPayload
	OnSuccess *nextJob `json:",omitzero"`
	OnFailure *nextJob `json:",omitzero"`
}

type jobFields Job

// nextPayload keeps a payload to the byte: JSON within JSON would be rewritten.
type nextPayload struct {
	Text  string `json:",omitzero"`
	Bytes []byte `json:",omitzero"` // what is not UTF-8
}

func (job Job) follows() bool {
	return job.OnSuccess != nil || job.OnFailure != nil || job.Callback != ""
}

// accept checks a job with all that follows it, and encodes both.
func (c *Client) accept(ctx context.Context, job Job, queue string, now time.Time) (accepted, error) {
	if !job.follows() {
		return job.accept(queue, now)
	}
	// It is remembered as a job with a key is: what came of it will be asked.
	job.Retention = cmp.Or(job.Retention, keyRetention)
	a, err := job.accept(queue, now)
	errs := []error{err}
	if field := job.tooDeep(maxChained); field != "" {
		errs = append(errs, validation.Field(field, fmt.Sprintf("more than %d jobs follow one another", maxChained)))
	} else {
		errs = append(errs, c.checkNext(ctx, job, now, "")...)
	}
	if err := errors.Join(errs...); err != nil {
		return accepted{}, err
	}
	success, err1 := encodeNext(job.OnSuccess, job.Tenant)
	failure, err2 := encodeNext(job.OnFailure, job.Tenant)
	text, err3 := json.Marshal(followUps{success, failure, job.Callback})
	if err := errors.Join(err1, err2, err3); err != nil {
		return accepted{}, err
	}
	if len(text) > maxNextBytes {
		field := "callback"
		if job.OnFailure != nil {
			field = "on_failure"
		}
		if job.OnSuccess != nil {
			field = "on_success"
		}
		return accepted{}, validation.Field(field, fmt.Sprintf("what follows the job takes %d bytes, more than %d; store large payloads elsewhere and enqueue references",
			len(text), maxNextBytes))

	}
	a.next = text
	return a, nil
}

// tooDeep names the field under which more than n jobs follow one another.
func (job Job) tooDeep(n int) string {
	for _, f := range job.children() {
		if n == 0 || f.job.tooDeep(n-1) != "" {
			return f.field
		}
	}
	return ""
}

type childJob struct {
	field string
	job   *Job
}

func (job Job) children() (children []childJob) {
	if job.OnSuccess != nil {
		children = append(children, childJob{"on_success", job.OnSuccess})
	}
	if job.OnFailure != nil {
		children = append(children, childJob{"on_failure", job.OnFailure})
	}
	return children
}

// checkNext says of all that follows a job what would be refused when it is enqueued.
func (c *Client) checkNext(ctx context.Context, job Job, now time.Time, path string) (errs []error) {
	for _, f := range job.children() {
		child, path := *f.job, path+f.field+"."
		child.Tenant = cmp.Or(child.Tenant, job.Tenant)
		queue, err := c.routes.queueOf(ctx, child)
		if err == nil {
			_, err = child.accept(queue, now)
		}
		errs = append(errs, under(path, err)...)
		errs = append(errs, c.checkNext(ctx, child, now, path)...)
	}
	if job.Callback == "" {
		return errs
	}
	if problem := callbackProblem(job.Callback); problem != "" {
		return append(errs, validation.Field(path+"callback", problem))
	}
	if _, err := c.routes.queueOf(ctx, Job{Kind: callbackKind}); err != nil {
		if wrong, ok := errors.AsType[*validation.Error](err); ok {
			err = validation.Field(path+"callback", wrong.Reason)
		}
		errs = append(errs, err)
	}
	return errs
}

// under puts the path of a follow-up in front of the fields that errors name.
func under(path string, err error) []error {
	if err == nil {
		return nil
	}
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for i, err := range all {
		if wrong, ok := errors.AsType[*validation.Error](err); ok {
			all[i] = validation.Field(path+wrong.Field, wrong.Reason)
		}
	}
	return all
}

// callbackProblem says why text is no URL to call, without repeating it: it may
// hold secrets.
func callbackProblem(text string) string {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxCallback:
		return fmt.Sprintf("%d bytes are more than %d", len(text), maxCallback)
	case err != nil || !utf8.ValidString(text):
		return "it is not a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		return "it is not an absolute http or https URL"
	case u.User != nil:
		return "user and password do not belong into it"
	case u.Hostname() == "":
		return "it has no host"
	case strings.ContainsFunc(u.Host, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return "its host is no name"
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return "its port is not within 1 to 65535"
		}
	}
	return ""
}

func encodeNext(job *Job, tenant string) (*nextJob, error) {
	if job == nil {
		return nil, nil
	}
	tenant = cmp.Or(job.Tenant, tenant)
	payload, err1 := encodePayload(job.Payload)
	success, err2 := encodeNext(job.OnSuccess, tenant)
	failure, err3 := encodeNext(job.OnFailure, tenant)
	n := &nextJob{jobFields: jobFields(*job), OnSuccess: success, OnFailure: failure}
	n.Tenant = tenant
	if utf8.Valid(payload) {
		n.Payload.Text = string(payload)
	} else {
		n.Payload.Bytes = payload
	}
	return n, errors.Join(err1, err2, err3)
}

func (n *nextJob) job() *Job {
	if n == nil {
		return nil
	}
	job := Job(n.jobFields)
	job.Payload = json.RawMessage(n.Payload.Text)
	if n.Payload.Bytes != nil {
		job.Payload = n.Payload.Bytes
	}
	job.OnSuccess, job.OnFailure = n.OnSuccess.job(), n.OnFailure.job()
	return &job
}

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
