package queue

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Event is one run of a job that made a call or ended its job.
type Event struct {
	ID      string    // the cursor of [Events]
	At      time.Time // when it was settled, by Redis's clock, to the millisecond
	Queue   string
	Job     string
	Tenant  string
	Kind    string
	Outcome Outcome       // of the run; Parked for a call that the worker's end cut off
	Answer  Answer        // "" when no call was made: the job expired, crashed, was cancelled
	Attempt int           // which call it was; without one, how many failed before
	Took    time.Duration // the call; 0 without one
	Reason  string        // at most 300 bytes; "" when all went well
}

// MostEvents is how many events one call of [Events] gives at most.
const MostEvents = 1000

const mostEventReason = 300

// At most 13 digits of milliseconds, until the year 2286: Redis knows no moment
// behind the largest one.
var cursorPattern = regexp.MustCompile(`^[0-9]{1,13}-[0-9]{1,18}$`)

// Events reads the newest n events of a queue, or with the ID of an event in
// after, the first n that came after it: the oldest first in either case. It
// needs not be an event that is still there: about the last 10,000 are kept. The
// error is an [InvalidError] when n is not within 1 to [MostEvents] or after is
// no ID. A queue that nobody knows has no events.
func Events(ctx context.Context, client redis.UniversalClient, queue, after string, n int) ([]Event, error) {
	if n < 1 || n > MostEvents {
		return nil, &InvalidError{"n", fmt.Sprintf("%d is not within 1 to %d", n, MostEvents)}
	}
	if after != "" && !cursorPattern.MatchString(after) {
		return nil, &InvalidError{"after", quote(after) + " is not the id of an event, such as 1767225600000-0"}
	}
	var entries []redis.XMessage
	var err error
	if after == "" {
		entries, err = client.XRevRangeN(ctx, key(queue, "events"), "+", "-", int64(n)).Result()
		slices.Reverse(entries)
	} else {
		entries, err = client.XRangeN(ctx, key(queue, "events"), "("+after, "+", int64(n)).Result()
	}
	if err != nil {
		return nil, fmt.Errorf("read the events of queue %q: %w", queue, err)
	}
	events := make([]Event, len(entries))
	for i, entry := range entries {
		events[i] = readEvent(queue, entry)
	}
	return events, nil
}

// readEvent is the way back from record.lua. What cannot be read is zero.
func readEvent(queue string, entry redis.XMessage) Event {
	text := func(field string) string { s, _ := entry.Values[field].(string); return s }
	number := func(s string) int64 { n, _ := strconv.ParseInt(s, 10, 64); return max(n, 0) }
	at, _, _ := strings.Cut(entry.ID, "-")
	return Event{
		ID: entry.ID, At: time.UnixMilli(number(at)), Queue: queue, Job: text("i"), Tenant: unescape(text("t")), Kind: unescape(text("k")),
		Outcome: Outcome(text("o")), Answer: Answer(text("a")), Attempt: int(number(text("n"))),
		Took: time.Duration(number(text("u"))) * time.Microsecond, Reason: text("r"),
	}
}
