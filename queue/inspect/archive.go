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
	values, ok := reply.([]any)
	if !ok || len(values)%5 != 1 {
		return fail(fmt.Errorf("unexpected reply of %T", reply))
	}
	text := store.Texts(values)
	for i := 1; i < len(text); i += 5 {
		micros, err := strconv.ParseInt(text[i+1], 10, 64)
		if err != nil {
			return fail(err)
		}
		message, err := asynqwire.Decode([]byte(text[i+3]))
		if err != nil {
			return fail(fmt.Errorf("job %s: %w", check.Quote(text[i]), err))
		}
		job := ArchivedJob{
			ID: text[i], Kind: message.Kind, Tenant: message.Tenant(), Outcome: lifecycle.Archived, Reason: message.Failure,
			At: time.UnixMicro(micros), Moved: text[i+2] == "1",
		}
		if outcome := lifecycle.Outcome(text[i+4]); outcome.Failed() {
			job.Outcome = outcome
		}
		jobs = append(jobs, job)
	}
	return jobs, text[0], nil
}
