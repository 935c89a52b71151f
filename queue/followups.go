package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/queue/encryption"
	"github.com/headgate/headgate/queue/validation"
)

// The follow-ups of a job are stored with it, in the hash field hg_next. They are enqueued
// when the job has ended: after the outcome was written to the job, and before the job
// is completed or archived. A follow-up's key is made from the job's id, so enqueueing it
// again after a crash, a lost reply or a second delivery finds the existing job.

const (
	maxChained   = 8
	maxNextBytes = 256 << 10
	maxCallback  = 8 << 10
)

// CallbackKind is the kind of the jobs that call [Job.Callback].
const CallbackKind = "webhook"

// followUps is the content of hg_next.
type followUps struct {
	Success  *nextJob `json:",omitzero"`
	Failure  *nextJob `json:",omitzero"`
	Callback string   `json:",omitzero"`
}

// nextJob is a job as JSON. It embeds all fields of Job, so new ones are encoded too.
type nextJob struct {
	jobFields
	Payload   nextPayload
	OnSuccess *nextJob `json:",omitzero"`
	OnFailure *nextJob `json:",omitzero"`
}

type jobFields Job

// nextPayload keeps the exact bytes of a payload: JSON within JSON would be rewritten.
type nextPayload struct {
	Text  string `json:",omitzero"`
	Bytes []byte `json:",omitzero"` // of a payload that is not UTF-8
}

func (job Job) follows() bool {
	return job.OnSuccess != nil || job.OnFailure != nil || job.Callback != ""
}

// accept checks and encodes a job with its follow-ups.
func (c *Client) accept(ctx context.Context, job Job, home string, now time.Time) (accepted, error) {
	job.keys = c.keys
	if !job.follows() {
		return job.accept(home, now)
	}
	// Kept like a job with a key, because somebody may ask for its result.
	job.Retention = cmp.Or(job.Retention, keyRetention)
	a, err := job.accept(home, now)
	errs := []error{err}
	if field := job.tooDeep(maxChained); field != "" {
		errs = append(errs, validation.Field(field, fmt.Sprintf("more than %d levels of follow-ups", maxChained)))
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
		return accepted{}, validation.Field(field, fmt.Sprintf("the follow-ups take %d bytes, more than %d; store large payloads elsewhere and enqueue references",
			len(text), maxNextBytes))

	}
	a.next = c.keys.Encrypt(text, encryption.PlaceOf(home, a.id, encryption.FollowUps))
	return a, nil
}

// tooDeep returns the field that has a chain of more than n jobs; "": none.
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

// checkNext checks all follow-ups of a job and returns the errors that enqueueing them
// would return. path is put before the names of their fields.
func (c *Client) checkNext(ctx context.Context, job Job, now time.Time, path string) (errs []error) {
	for _, f := range job.children() {
		child, path := *f.job, path+f.field
		child.Tenant = cmp.Or(child.Tenant, job.Tenant)
		home, err := c.routes.homeOf(ctx, child, now, 0)
		if err == nil {
			_, err = child.accept(home, now)
		}
		errs = append(errs, validation.Under(path, err)...)
		errs = append(errs, c.checkNext(ctx, child, now, path+".")...)
	}
	if job.Callback == "" {
		return errs
	}
	if problem := callbackProblem(job.Callback); problem != "" {
		return append(errs, validation.Field(path+"callback", problem))
	}
	if _, err := c.routes.homeOf(ctx, Job{Kind: CallbackKind}, now, 0); err != nil {
		if wrong, ok := errors.AsType[*validation.Error](err); ok {
			err = validation.Field(path+"callback", wrong.Reason)
		}
		errs = append(errs, err)
	}
	return errs
}

// callbackProblem returns why text is not a valid Callback, or "". It does not quote the
// text, which may have secrets.
func callbackProblem(text string) string {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxCallback:
		return fmt.Sprintf("%d bytes; the maximum is %d", len(text), maxCallback)
	case err != nil || !utf8.ValidString(text):
		return "it is not a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		return "it is not an absolute http or https URL"
	case u.User != nil:
		return "must not contain a user or password"
	case u.Hostname() == "":
		return "it has no host"
	case strings.ContainsFunc(u.Host, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return "its host is invalid"
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return "its port must be 1 to 65535"
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
	n.Tenant, n.Costs = tenant, job.costs()
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
