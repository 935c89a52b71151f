package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/jobline"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/validation"
)

// receipt is the response for an accepted job.
type receipt struct {
	ID       string `json:"id"`
	Queue    string `json:"queue"`
	Existing bool   `json:"existing"` // the same job was already enqueued
	State    string `json:"state"`

	Durability string `json:"durability"` // which servers have the job

	// The forecast. At thousands of jobs a second not every job has one;
	// Confidence is then "none".
	Position   *int64    `json:"position,omitempty"` // jobs ahead of it in its lane
	ExpectedAt *moment   `json:"expected_at,omitempty"`
	HeldBy     *holdJSON `json:"held_by,omitempty"`
	Confidence string    `json:"confidence"`
	stopJSON
	Text string `json:"text,omitempty"`

	Warning string `json:"warning,omitempty"` // what keeps the job from being sent, if it is known
}

// maxEnqueueTime is the max duration of a request to Redis with its retries.
const maxEnqueueTime = 10 * time.Second

// enqueueOne serves POST /jobs.
func (a *API) enqueueOne(r *request) (answer, error) {
	if err := wantType(r.Request, "application/json"); err != nil {
		return answer{}, err
	}
	text, err := readBody(r, jobline.MaxLine)
	if err != nil {
		return answer{}, err
	}
	key, err := idempotencyKey(r.Request, check.MaxKey)
	if err != nil {
		return answer{}, err
	}
	job, err := a.jobOf(r.Context(), r.caller, text, key)
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxEnqueueTime)
	defer cancel()
	got, err := a.client.Enqueue(ctx, job)
	if err != nil {
		return answer{}, err
	}
	out := receipt{ID: got.ID, Queue: got.Queue, Existing: got.Existing, State: string(got.State), Durability: string(got.Durability), Confidence: string(inspect.NoForecast)}
	if e, ok := a.expect.of(r.Context(), got); ok {
		out.ExpectedAt, out.HeldBy, out.Confidence, out.Text = at(e.At), holdOf(e.HeldBy), string(e.Confidence), e.String()
		out.stopJSON = stopOf(e.Pause, e.Unserved)
		if e.State == lifecycle.StateWaiting {
			out.Position = &e.Position
		}
	}
	out.Warning = a.warning(r.Context(), job)
	return answer{http.StatusAccepted, out}, nil
}

// warning returns what keeps a job from being sent although it was accepted.
func (a *API) warning(ctx context.Context, job queue.Job) string {
	payload, ok := job.Payload.(json.RawMessage)
	if !ok || a.config.PrivateHost == nil {
		return ""
	}
	host := a.config.PrivateHost(job.Kind, payload)
	if host == "" {
		return ""
	}
	return PrivateWarning(ctx, a.config.Redis, host)
}

// jobOf reads a job and checks that the caller may enqueue it.
func (a *API) jobOf(ctx context.Context, c caller, text []byte, key *string) (queue.Job, error) {
	line, err := jobline.Parse(text)
	if err != nil {
		return queue.Job{}, lineProblem(err)
	}
	if line.Key == nil {
		line.Key = key
	}
	now := time.Now()
	job, err := a.lineJob(ctx, line, now)
	if err != nil {
		return queue.Job{}, err
	}
	return job, a.mayEnqueue(ctx, c, &job, job.Tenant, now)
}

// lineJob makes the job of a line. Its error lists all invalid fields, the queue among them, as Redis had
// it at since or later.
func (a *API) lineJob(ctx context.Context, line jobline.Line, since time.Time) (queue.Job, error) {
	job, err := line.Job(a.payloads())
	if err != nil {
		_, queueErr := a.client.QueueOf(ctx, job, since)
		if validation.Is(queueErr) {
			err = errors.Join(err, queueErr)
		}
		return queue.Job{}, lineProblem(err)
	}
	return job, nil
}

// idempotencyKey returns the key of a request, of at most the given number of bytes, or nil if it
// has none.
func idempotencyKey(r *http.Request, most int) (*string, error) {
	const name = "Idempotency-Key"
	keys := r.Header.Values(name)
	switch {
	case len(keys) == 0:
		return nil, nil
	case len(keys) > 1:
		return nil, invalid(name, "%d headers, but a request has only one key", len(keys))
	}
	if reason := check.Text(keys[0], most); reason != "" {
		return nil, invalid(name, "%s", reason)
	}
	return &keys[0], nil
}

func (a *API) payloads() jobline.Payloads {
	return jobline.Payloads{Check: a.config.CheckPayload, Costs: a.config.PayloadCosts}
}

// lineProblem makes a problem of an error in the text of a job. Errors of fields keep their
// names.
func lineProblem(err error) error {
	if len(invalidFields(err)) > 0 {
		return err
	}
	return newProblem(http.StatusBadRequest, codeInvalid, "%s", oneLine(err))
}

// wantType refuses bodies of other types and compressed bodies.
func wantType(r *http.Request, types ...string) error {
	given := r.Header.Get("Content-Type")
	kind, params, err := mime.ParseMediaType(given)
	ok := err == nil && slices.Contains(types, kind)
	if charset := params["charset"]; !ok || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return newProblem(http.StatusUnsupportedMediaType, codeMediaType, "Content-Type %.100q is not supported: send %s.", given, strings.Join(types, " or "))
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return newProblem(http.StatusUnsupportedMediaType, codeMediaType, "Content-Encoding %.40q is not supported: send the body uncompressed.", encoding)
	}
	return nil
}

// readBody reads a body of at most the given number of bytes.
func readBody(r *request, most int64) ([]byte, error) {
	if r.ContentLength > most {
		return nil, tooLarge(most)
	}
	// Memory is taken as the body comes: its length is only what the client says.
	text, err := io.ReadAll(http.MaxBytesReader(r.w, r.Body, most))
	if err == nil { // else the server reads the rest
		_ = http.NewResponseController(r.w).SetReadDeadline(time.Time{}) // it would end what takes longer, as if the client had left
	}
	return text, bodyError(err)
}

func tooLarge(most int64) *problem {
	return newProblem(http.StatusRequestEntityTooLarge, codeTooLarge, "The body is larger than %d bytes.", most)
}

// bodyError makes a problem of an error in reading a body.
func bodyError(err error) error {
	if err == nil {
		return nil
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge(large.Limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return newProblem(http.StatusRequestTimeout, codeTooSlow, "The body did not come in time: a body must arrive within %v, of a batch each %d jobs, and a batch within %v.", chunkTime, chunkLines, maxBatchTime)
	}
	return newProblem(http.StatusBadRequest, codeInvalid, "The body is incomplete.")
}
