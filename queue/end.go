package queue

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/encryption"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
)

// A job without follow-ups ends in one step, settle.lua. A job with follow-ups ends in three
// steps, each of which starts when the one before is in Redis: its outcome is marked on the
// job, its follow-ups are enqueued, and the job is put away (deleted, completed or archived).
// If the worker dies in between, the next worker finds the mark and goes on from there,
// without a call.

// endError is the reason for which a job ended for good without success.
type endError struct{ err error }

func (e *endError) Error() string { return check.BoundReason(e.err.Error()) }
func (e *endError) Unwrap() error { return e.err }

// end is what Redis has of a job that has ended.
type end struct {
	outcome lifecycle.Outcome
	reason  string
	result  string
	next    string // followUps as JSON; "": none
	times   string // how often it was archived and then retried before; "": never

	// Whether a follow-up is there shows from its id, which is forgotten some time after the follow-up is done. So
	// the job keeps what is known of them.
	enqueued []string  // fields of [Job] of the follow-ups that are known to be enqueued
	since    time.Time // the others may have been enqueued since then; zero: they were not
	unclear  bool      // a try got no answer, so a later rejection does not show that it did not arrive
	silent   []string  // the partitions that gave no answer to the last try
}

// readFollowed reads hg_followed.
func (e *end) readFollowed(text string) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return
	}
	since, unclear := strings.CutSuffix(words[0], "?")
	e.unclear = unclear
	if seconds, err := strconv.ParseInt(since, 10, 64); err == nil && seconds > 0 {
		e.since = time.Unix(seconds, 0)
	}
	e.enqueued = words[1:]
}

// followed returns hg_followed; "" if the job has no follow-ups.
func (e *end) followed() string {
	if e.next == "" {
		return ""
	}
	since := "0"
	if !e.since.IsZero() {
		since = strconv.FormatInt(e.since.Unix(), 10)
	}
	if e.unclear {
		since += "?"
	}
	return strings.Join(append([]string{since}, e.enqueued...), " ")
}

func (e end) verdict() verdict {
	if e.outcome == lifecycle.Done {
		return verdict{outcome: lifecycle.Done}
	}
	return archive(e.outcome, errors.New(e.reason))
}

func (g *gate) readEnd(ctx context.Context, id string) (end, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.Timeout)
	defer cancel()
	fields, err := g.redis.HMGet(ctx, asynqwire.Key(g.queue, "t:"+id), "hg_done", "hg_outcome", "hg_error", "result", "hg_next", "hg_ends", "hg_followed").Result()
	if err != nil {
		return end{}, err
	}
	text := store.Texts(fields)
	e := end{outcome: lifecycle.Done, reason: text[2], result: text[3], next: text[4], times: text[5]}
	e.readFollowed(text[6])
	if text[0] == "0" {
		if e.outcome = lifecycle.Outcome(text[1]); !e.outcome.Failed() {
			e.outcome = lifecycle.Archived
		}
	}
	for _, stored := range []struct {
		text  *string
		field encryption.Field
	}{{&e.result, encryption.Result}, {&e.next, encryption.FollowUps}} {
		plain, err := g.keys.Decrypt([]byte(*stored.text), encryption.PlaceOf(g.queue, id, stored.field))
		if err != nil {
			return e, &lockedError{err}
		}
		*stored.text = string(plain)
	}
	return e, nil
}
