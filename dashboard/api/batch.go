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

	"github.com/headgate/headgate/internal/jobline"
	"github.com/headgate/headgate/queue"
)

const (
	maxBatches    = 16       // under way at once: what each holds in memory is bounded, so all of it is
	maxLines      = 100_000  // jobs in one batch
	maxBatchBytes = 64 << 20 // of NDJSON
	maxArrayBytes = 8 << 20  // of a JSON array, whose jobs are not bounded by lines

	chunkLines = 200 // enqueued while the next are read
	chunkBytes = 4 << 20
	chunkTime  = 30 * time.Second // for each chunk to come
)

// batchAnswer is what became of a batch.
type batchAnswer struct {
	Accepted int          `json:"accepted"`
	Existing int          `json:"existing"`
	Refused  int          `json:"refused"`
	Results  []itemResult `json:"results"`

	// Stopped says why jobs behind the last result were not looked at.
	Stopped *itemError `json:"stopped,omitempty"`
}

// itemResult is what became of one job of a batch.
type itemResult struct {
	Index    int        `json:"index"` // from 0, over the jobs
	ID       string     `json:"id,omitempty"`
	Queue    string     `json:"queue,omitempty"`
	Existing bool       `json:"existing,omitempty"`
	State    string     `json:"state,omitempty"`
	Error    *itemError `json:"error,omitempty"`
}

type itemError struct {
	Field  string `json:"field,omitempty"` // the first that is wrong
	Reason string `json:"reason"`
	Code   string `json:"code"` // as that of a problem
}

func itemErrorOf(err error) *itemError {
	p := problemOf(err)
	e := &itemError{Reason: p.Detail, Code: p.Code}
	if len(p.Errors) > 0 {
		e.Field = p.Errors[0].Field
	}
	return e
}

// entries gives one job after the other; io.EOF ends it.
type entries interface {
	Next() (jobline.Entry, error)
}

// enqueueBatch answers POST /jobs/batch. It enqueues while it reads, so that a
// batch is never in memory as a whole.
func (a *API) enqueueBatch(r *request) error {
	const lines, array = "application/x-ndjson", "application/json"
	if err := wantType(r.Request, lines, array); err != nil {
		return err
	}
	most := int64(maxBatchBytes)
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // was just looked at
	if kind == array {
		most = maxArrayBytes
	}
	if r.ContentLength > most {
		return tooLarge(most)
	}
	select {
	case a.batches <- struct{}{}:
		defer func() { <-a.batches }()
	default:
		p := newProblem(http.StatusTooManyRequests, codeBusy, "%d batches are being read, and no more are at once.", maxBatches)
		p.retryAfter = fullRetry
		return p
	}
	control := http.NewResponseController(r.w)
	body := http.MaxBytesReader(r.w, r.Body, most)
	var from entries
	if kind == array {
		from = &arraySource{decoder: json.NewDecoder(body)}
	} else {
		from = jobline.NewSource(body, "ndjson")
	}
	b := &batch{api: a, r: r, from: from}
	err := b.all(r.Context(), func() { _ = control.SetReadDeadline(time.Now().Add(chunkTime)) }) // without deadlines it waits for the client
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

// batch is the work of one.
type batch struct {
	api    *API
	r      *request
	from   entries
	read   int
	answer batchAnswer
	denied bool // somebody else's tenant was named, and that was noted
}

// chunk is jobs that go together: what is known of each, and those that can go.
type chunk struct {
	results []itemResult
	jobs    []queue.Job
	at      []int // of the jobs among the results
}

func (b *batch) all(ctx context.Context, goOn func()) error {
	var sent chan error // the chunk that is being enqueued; nil: none
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

// next reads a chunk. The error, if any, is why there is none behind it.
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
			return c, newProblem(http.StatusRequestEntityTooLarge, codeTooLarge, "A batch has at most %d jobs.", maxLines)
		}
		bytes += len(e.Input)
		result := itemResult{Index: b.read}
		b.read++
		job, err := b.jobOf(e)
		if err != nil {
			result.Error = itemErrorOf(err)
		} else {
			c.jobs, c.at = append(c.jobs, job), append(c.at, len(c.results))
		}
		c.results = append(c.results, result)
	}
	return c, nil
}

func (b *batch) jobOf(e jobline.Entry) (queue.Job, error) {
	if e.Err != nil {
		return queue.Job{}, lineProblem(e.Err)
	}
	job, err := e.Line.Job(b.api.payloads())
	if err != nil {
		return queue.Job{}, lineProblem(err)
	}
	if err := mayEnqueue(b.r.caller, &job, job.Tenant); err != nil {
		if p := problemOf(err); !b.denied {
			b.denied = true
			b.api.refused.add(b.r.Request, b.r.caller, p)
		}
		return queue.Job{}, err
	}
	return job, nil
}

// enqueue enqueues a chunk. The error is one that the next chunk would meet, too.
func (b *batch) enqueue(ctx context.Context, c *chunk) error {
	ctx, cancel := context.WithTimeout(ctx, 2*maxEnqueueTime)
	defer cancel()
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
	}
	if stop != nil && done == 0 && len(b.answer.Results) == 0 {
		return stop // nothing was done: the whole request failed
	}
	for _, result := range c.results {
		switch {
		case result.Error != nil:
			b.answer.Refused++
		case result.Existing:
			b.answer.Existing++
		default:
			b.answer.Accepted++
		}
	}
	b.answer.Results = append(b.answer.Results, c.results...)
	return stop
}

// arraySource reads {"jobs":[…]}, one job after the other.
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
			return newProblem(http.StatusBadRequest, codeInvalid, `The body has to be an object as in {"jobs":[{"kind":"webhook","tenant":"acme","payload":{…}}]}.`)
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
			return newProblem(http.StatusBadRequest, codeInvalid, "There is nothing but jobs in a batch.")
		}
	}
	if _, err := s.decoder.Token(); !errors.Is(err, io.EOF) {
		return newProblem(http.StatusBadRequest, codeInvalid, "Something follows the batch.")
	}
	return io.EOF
}

// notJSON tells a text that is no JSON from one that did not come to its end.
func notJSON(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return newProblem(http.StatusBadRequest, codeInvalid, "The body ends in the middle of the JSON.")
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return newProblem(http.StatusBadRequest, codeInvalid, "not JSON: %v", syntax)
	}
	return err
}
