package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/jobline"
	"github.com/headgate/headgate/queue"
)

const (
	maxBatches    = 16       // in progress at once, which bounds their memory
	maxLines      = 100_000  // jobs in one batch
	maxBatchBytes = 64 << 20 // of NDJSON
	maxArrayBytes = 8 << 20  // of a JSON array, whose elements are not limited by lines
	maxListed     = 100_000  // invalid fields in the answer to one batch; each job after them lists its first

	chunkLines = 200 // enqueued while the next chunk is read
	chunkBytes = 4 << 20
	chunkTime  = 30 * time.Second // for each chunk to arrive

	maxBatchTime = 10 * time.Minute
	writeTime    = 2 * time.Minute // for the client to read the answer, of up to some 30 MB
)

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// batchAnswer is the result of a batch.
type batchAnswer struct {
	Accepted int          `json:"accepted"`
	Existing int          `json:"existing"`
	Refused  int          `json:"refused"`
	Results  []itemResult `json:"results"`

	// Stopped is why the jobs after the last result were not processed.
	Stopped *itemError `json:"stopped,omitempty"`
}

// itemResult is the result of one job of a batch.
type itemResult struct {
	Index    int    `json:"index"` // of the job, from 0
	ID       string `json:"id,omitempty"`
	Queue    string `json:"queue,omitempty"`
	Existing bool   `json:"existing,omitempty"`
	State    string `json:"state,omitempty"`

	Durability string     `json:"durability,omitempty"`
	Error      *itemError `json:"error,omitempty"`
}

type itemError struct {
	Reason string       `json:"reason"`
	Code   string       `json:"code"`             // as in a problem
	Errors []fieldError `json:"errors,omitempty"` // the first invalid fields
}

func itemErrorOf(err error) *itemError {
	p := problemOf(err)
	return &itemError{p.Detail, p.Code, p.Errors}
}

// entries returns one job after another, and then io.EOF.
type entries interface {
	Next() (jobline.Entry, error)
}

// enqueueBatch serves POST /jobs/batch. It enqueues while it reads, so that a batch is never
// in memory as a whole.
func (a *API) enqueueBatch(r *request) error {
	const lines, array = "application/x-ndjson", "application/json"
	if err := wantType(r.Request, lines, array); err != nil {
		return err
	}
	most := int64(maxBatchBytes)
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // wantType has parsed it
	if kind == array {
		most = maxArrayBytes
	}
	if r.ContentLength > most {
		return tooLarge(most)
	}
	release, err := a.batches.take(r.caller)
	if err != nil {
		return err
	}
	defer release()
	end := time.Now().Add(maxBatchTime)
	// The server ends the request's own context when its body stops coming, but what came counts.
	ctx, cancel := context.WithDeadline(context.WithoutCancel(r.Context()), end)
	defer cancel()
	control := http.NewResponseController(r.w)
	body := http.MaxBytesReader(r.w, r.Body, most)
	var from entries
	if kind == array {
		from = &arraySource{decoder: json.NewDecoder(body)}
	} else {
		from = jobline.NewSource(body, "ndjson")
	}
	key, err := idempotencyKey(r.Request, check.MaxKey-len(".99999"))
	if err != nil {
		return err
	}
	b := &batch{api: a, r: r, began: time.Now(), from: from, key: key}
	err = b.all(ctx, func() { // a writer without deadlines waits for the client
		_ = control.SetReadDeadline(earlier(time.Now().Add(a.chunkTime), end))
	})
	// A client that does not read its answer would keep its slot for ever.
	_ = control.SetWriteDeadline(time.Now().Add(a.writeTime))
	if err != nil {
		return err
	}
	status := http.StatusAccepted
	if b.answer.Refused > 0 || b.answer.Stopped != nil {
		status = http.StatusMultiStatus
	}
	send(r.w, r.Request, status, "application/json", b.answer)
	return nil
}

// batch is a batch in progress.
type batch struct {
	api    *API
	r      *request
	began  time.Time
	from   entries
	key    *string // of which jobs without a key get one; nil: none
	read   int
	listed int // invalid fields in the answer
	answer batchAnswer
	denied bool // a refusal for a tenant of another key was recorded
}

// chunk has jobs that are enqueued together: the results of all, and those that are valid.
type chunk struct {
	results []itemResult
	jobs    []queue.Job
	at      []int // indexes of jobs in results
}

func (b *batch) all(ctx context.Context, goOn func()) error {
	var sent chan error // receives the result of the chunk being enqueued; nil: none
	wait := func() error {
		if sent == nil {
			return nil
		}
		return <-sent
	}
	for {
		goOn()
		next, readErr := b.next()
		if err := wait(); err != nil {
			return b.stop(err)
		}
		if sent = nil; next != nil {
			sent = make(chan error, 1)
			go func() { sent <- b.enqueue(ctx, next) }()
		}
		if readErr == nil {
			continue
		}
		if err := wait(); err != nil {
			return b.stop(err)
		}
		if !errors.Is(readErr, io.EOF) {
			return b.stop(readErr)
		}
		if b.read == 0 {
			return newProblem(http.StatusBadRequest, codeInvalid, "There is no job in the body.")
		}
		return nil
	}
}

// stop ends a batch before its end. Where nothing was done yet it is an error.
func (b *batch) stop(err error) error {
	if len(b.answer.Results) == 0 {
		return err
	}
	b.answer.Stopped = itemErrorOf(err)
	return nil
}

// next reads a chunk. The error, if any, is why no chunk follows it.
func (b *batch) next() (*chunk, error) {
	c := &chunk{}
	for bytes := 0; len(c.results) < chunkLines && bytes < chunkBytes; {
		e, err := b.from.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				if _, ok := errors.AsType[*problem](err); !ok {
					err = bodyError(err)
				}
			}
			if len(c.results) == 0 {
				c = nil
			}
			return c, err
		}
		if b.read == maxLines {
			return c, newProblem(http.StatusRequestEntityTooLarge, codeTooLarge, "A batch can have at most %d jobs.", maxLines)
		}
		bytes += len(e.Input)
		result := itemResult{Index: b.read}
		b.read++
		job, err := b.jobOf(result.Index, e)
		if err != nil {
			result.Error = itemErrorOf(err)
		} else {
			c.jobs, c.at = append(c.jobs, job), append(c.at, len(c.results))
		}
		c.results = append(c.results, result)
	}
	return c, nil
}

// jobOf returns the job of an entry, with its index in the batch.
func (b *batch) jobOf(index int, e jobline.Entry) (queue.Job, error) {
	if e.Err != nil {
		return queue.Job{}, lineProblem(e.Err)
	}
	if b.key != nil && e.Line.Key == nil {
		e.Line.Key = new(fmt.Sprintf("%s.%d", *b.key, index))
	}
	return b.api.lineJob(b.r.Context(), e.Line, b.began)
}

// permit leaves in a chunk the jobs that the key may enqueue now: it may have been narrowed or
// revoked while the batch came.
func (b *batch) permit(ctx context.Context, c *chunk) error {
	now, err := b.api.again(b.r, Enqueue)
	if err != nil {
		return err
	}
	began, jobs, at := time.Now(), c.jobs[:0], c.at[:0]
	for i, job := range c.jobs {
		if err := b.api.mayEnqueue(ctx, now, &job, job.Tenant, began); err != nil {
			p := problemOf(err)
			if p.refusal != "" && !b.denied {
				b.denied = true
				b.api.refused.add(b.r.Request, now, p)
			}
			c.results[c.at[i]].Error = itemErrorOf(err)
			continue
		}
		jobs, at = append(jobs, job), append(at, c.at[i])
	}
	c.jobs, c.at = jobs, at
	return nil
}

// enqueue enqueues a chunk. Its error is one that would affect the next chunk too.
func (b *batch) enqueue(ctx context.Context, c *chunk) error {
	ctx, cancel := context.WithTimeout(ctx, 2*maxEnqueueTime)
	defer cancel()
	if err := b.permit(ctx, c); err != nil {
		return err
	}
	var stop error
	done := 0
	for i, got := range b.api.client.EnqueueMany(ctx, c.jobs) {
		result := &c.results[c.at[i]]
		if got.Err != nil {
			result.Error = itemErrorOf(got.Err)
			if code := result.Error.Code; code == codeUnknown || code == codeUnavailable || code == codeInternal {
				stop = got.Err
			}
			continue
		}
		done++
		result.ID, result.Queue, result.Existing, result.State = got.ID, got.Queue, got.Existing, string(got.State)
		result.Durability = string(got.Durability)
	}
	if stop != nil && done == 0 && len(b.answer.Results) == 0 {
		return stop // no job was enqueued: the whole request failed
	}
	for _, result := range c.results {
		switch {
		case result.Error != nil:
			b.answer.Refused++
			if b.listed += len(result.Error.Errors); b.listed > maxListed {
				result.Error.Errors, result.Error.Reason = listed(result.Error.Errors, result.Error.Reason, 1)
			}
		case result.Existing:
			b.answer.Existing++
		default:
			b.answer.Accepted++
		}
	}
	b.answer.Results = append(b.answer.Results, c.results...)
	return stop
}

// arraySource reads {"jobs":[…]}, one job after another.
type arraySource struct {
	decoder *json.Decoder
	began   bool
}

func (s *arraySource) Next() (jobline.Entry, error) {
	if !s.began {
		if err := s.begin(); err != nil {
			return jobline.Entry{}, err
		}
		s.began = true
	}
	if !s.decoder.More() {
		return jobline.Entry{}, s.end()
	}
	var text json.RawMessage
	if err := s.decoder.Decode(&text); err != nil {
		return jobline.Entry{}, notJSON(err)
	}
	e := jobline.Entry{Input: string(text)}
	if len(text) > jobline.MaxLine {
		e.Err = fmt.Errorf("the job is larger than %d bytes", jobline.MaxLine)
		return e, nil
	}
	e.Line, e.Err = jobline.Parse(text)
	return e, nil
}

func (s *arraySource) begin() error {
	for _, want := range []json.Token{json.Delim('{'), "jobs", json.Delim('[')} {
		token, err := s.decoder.Token()
		if err != nil {
			return notJSON(err)
		}
		if token != want {
			return newProblem(http.StatusBadRequest, codeInvalid, `The body must be an object such as {"jobs":[{"kind":"webhook","tenant":"acme","payload":{…}}]}.`)
		}
	}
	return nil
}

func (s *arraySource) end() error {
	for _, want := range []json.Token{json.Delim(']'), json.Delim('}')} {
		token, err := s.decoder.Token()
		if err != nil {
			return notJSON(err)
		}
		if token != want {
			return newProblem(http.StatusBadRequest, codeInvalid, "A batch must have no field but jobs.")
		}
	}
	if _, err := s.decoder.Token(); !errors.Is(err, io.EOF) {
		return newProblem(http.StatusBadRequest, codeInvalid, "The body has data after the batch.")
	}
	return io.EOF
}

// notJSON makes a problem of a body that is not JSON or was cut short.
func notJSON(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return newProblem(http.StatusBadRequest, codeInvalid, "The body ends before the JSON is complete.")
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return newProblem(http.StatusBadRequest, codeInvalid, "The body is not JSON: %v", syntax)
	}
	return err
}
