package inspect

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
)

// ArchivedJob is one that ended without success.
type ArchivedJob struct {
	ID, Kind, Tenant string

	Outcome lifecycle.Outcome // Archived also where another tool than ours archived it
	Reason  string            // "" where another tool archived it before it was ever called
	At      time.Time         // when it was archived, to the second

	// Moved: it is so old that asynq's own tools do not list it any more.
	Moved bool
}

const maxListed = 100

// ListArchived lists a queue's archived jobs, the newest first, also those that
// asynq's tools do not list any more: up to n (at most 100, and 0 means 100)
// behind the cursor, which is "" for the newest. next is the cursor of the page
// behind, "" when this was the last. Jobs that are archived or moved meanwhile
// make no page miss or repeat others.
func ListArchived(ctx context.Context, client redis.UniversalClient, queue, cursor string, n int) (jobs []ArchivedJob, next string, err error) {
	fail := func(err error) ([]ArchivedJob, string, error) {
		return nil, "", fmt.Errorf("list the archived jobs of queue %q: %w", queue, err)
	}
	at, id := "", ""
	if cursor != "" {
		var ok bool
		at, id, ok = strings.Cut(cursor, ":")
		if micros, err := strconv.ParseUint(at, 10, 53); err != nil || !ok {
			return fail(fmt.Errorf("cursor %s is none that was given", check.Quote(cursor)))
		} else {
			at = strconv.FormatUint(micros, 10)
		}
	}
	if n <= 0 || n > maxListed {
		n = maxListed
	}
	reply, err := store.ArchivedScript.Run(ctx, client, store.ScriptKeys(queue), queue, at, id, n)
	if err != nil {
		return fail(err)
	}
	read := store.Read(reply)
	next = read.Text()
	for read.More() {
		job := ArchivedJob{ID: read.Text(), At: time.UnixMicro(read.Int()), Moved: read.Text() == "1", Outcome: lifecycle.Archived}
		message, err := asynqwire.Decode([]byte(read.Text()))
		if err != nil {
			return fail(fmt.Errorf("job %s: %w", check.Quote(job.ID), err))
		}
		job.Kind, job.Tenant, job.Reason = message.Kind, message.Tenant(), message.Failure
		if outcome := lifecycle.Outcome(read.Text()); outcome.Failed() {
			job.Outcome = outcome
		}
		jobs = append(jobs, job)
	}
	if err := read.End(); err != nil {
		return fail(err)
	}
	return jobs, next, nil
}
