package queue

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"
)

// A job without follow-ups ends in one step (settle.lua). One with follow-ups ends in three,
// and none comes before the one in front of it is in Redis: its mark is written, what follows
// it is enqueued, and the job is put away. A worker that dies between them leaves a job that
// the next worker finds by its mark: it goes on from there, and calls nothing.

// failed tells the outcomes of a job that ended for good without success.
func (o Outcome) failed() bool {
	switch o {
	case Archived, Expired, Unknown, Crashed, Cancelled:
		return true
	}
	return false
}

const mostReason = 1 << 10

// boundReason makes an error's text fit to be stored: asynq's tools cannot decode a task
// whose error is not UTF-8.
func boundReason(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= mostReason {
		return text
	}
	end := mostReason - len("…")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// endError is why a job ended for good without success.
type endError struct{ err error }

func (e *endError) Error() string { return boundReason(e.err.Error()) }
func (e *endError) Unwrap() error { return e.err }

// end is what stands in Redis of a job that has ended.
type end struct {
	outcome Outcome
	reason  string
	result  string
	next    string // the jobs that follow it, encoded
	times   string // how often it was archived and run again before; "" for never
}

func (e end) verdict() verdict {
	if e.outcome == Done {
		return verdict{outcome: Done}
	}
	return archive(e.outcome, errors.New(e.reason))
}

func (g *gate) readEnd(ctx context.Context, id string) (end, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisTimeout)
	defer cancel()
	fields, err := g.redis.HMGet(ctx, asynqKey(g.queue, "t:"+id), "hg_done", "hg_outcome", "hg_error", "result", "hg_next", "hg_ends").Result()
	if err != nil {
		return end{}, err
	}
	text := texts(fields)
	e := end{outcome: Done, reason: text[2], result: text[3], next: text[4], times: text[5]}
	if text[0] == "0" {
		if e.outcome = Outcome(text[1]); !e.outcome.failed() {
			e.outcome = Archived
		}
	}
	return e, nil
}

// texts reads the fields of HMGET; what is not there is "".
func texts(fields []any) []string {
	out := make([]string, len(fields))
	for i, field := range fields {
		out[i], _ = field.(string)
	}
	return out
}
