package inspect

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/validation"
)

// Event is a run of a job that made a call or ended the job.
type Event struct {
	ID      string    // the cursor of [Events]
	At      time.Time // when it was settled, by the clock of Redis, to the millisecond
	Queue   string
	Job     string
	Tenant  string
	Kind    string
	Outcome lifecycle.Outcome // of the run; Parked for a call that ended with its worker
	Answer  lifecycle.Answer  // "" if no call was made: the job expired, crashed, or was cancelled
	Attempt int               // number of the call; without a call, how many failed before
	Took    time.Duration     // duration of the call; 0 without one
	Reason  string            // at most 300 bytes; "" after success
}

// MaxEvents is the maximum number of events that one call of [Events] returns.
const MaxEvents = 1000

// Milliseconds have at most 13 digits until the year 2286, and Redis rejects IDs above
// its largest one.
var cursorPattern = regexp.MustCompile(`^[0-9]{1,13}-[0-9]{1,18}(\.[0-9]{1,4})?$`)

// Events returns the newest n events of a queue or, if after is the ID of an event, the
// first n after that one; in both cases oldest first. The event of that ID may be deleted
// already: at least the last 5,000 are kept. The error is a [validation.Error] if n is
// not within 1 to [MaxEvents] or after is not an ID. A queue that does not exist has no
// events.
func Events(ctx context.Context, client redis.UniversalClient, queue, after string, n int) ([]Event, error) {
	if n < 1 || n > MaxEvents {
		return nil, validation.Field("n", fmt.Sprintf("%d must be 1 to %d", n, MaxEvents))
	}
	if after != "" && !cursorPattern.MatchString(after) {
		return nil, validation.Field("after", check.Quote(after)+" is not the id of an event, such as 1767225600000-0.1")
	}
	events, err := readEvents(ctx, client, queue, after, n)
	if err != nil {
		return nil, fmt.Errorf("read the events of queue %q: %w", queue, err)
	}
	return events, nil
}

// eventsAtATime is how many entries of the stream are read at a time. Each has at least
// one event.
const eventsAtATime = 100

func readEvents(ctx context.Context, client redis.UniversalClient, queue, after string, n int) (events []Event, err error) {
	stream, most := store.Key(queue, "events"), int64(min(n, eventsAtATime))
	if after == "" {
		for end := "+"; len(events) < n; {
			entries, err := client.XRevRangeN(ctx, stream, end, "-", most).Result()
			if err != nil {
				return nil, err
			}
			for _, entry := range entries {
				end = "(" + entry.ID
				of := readEntry(queue, entry)
				slices.Reverse(of)
				events = append(events, of...)
			}
			if len(entries) < int(most) {
				break
			}
		}
		events = events[:min(n, len(events))]
		slices.Reverse(events)
		return events, nil
	}
	entry, _, _ := strings.Cut(after, ".")
	for begin := entry; len(events) < n; {
		entries, err := client.XRangeN(ctx, stream, begin, "+", most).Result()
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			begin = "(" + entry.ID
			for _, event := range readEntry(queue, entry) {
				if !isBehind(event.ID, after) {
					continue
				}
				events = append(events, event)
			}
		}
		if len(entries) < int(most) {
			break
		}
	}
	return events[:min(n, len(events))], nil
}

// isBehind reports whether an event comes after the one of a cursor.
func isBehind(id, cursor string) bool {
	entry, place, _ := strings.Cut(cursor, ".")
	of, at, _ := strings.Cut(id, ".")
	if of != entry {
		return true // entries before it are not read
	}
	n, _ := strconv.Atoi(at)
	known, err := strconv.Atoi(place)
	return err == nil && n > known
}

// readEntry reads the events of an entry that record.lua wrote. Fields that it cannot
// read are zero.
func readEntry(queue string, entry redis.XMessage) []Event {
	number := func(s string) int64 { n, _ := strconv.ParseInt(s, 10, 64); return max(n, 0) }
	millis, _, _ := strings.Cut(entry.ID, "-")
	var events []Event
	for i := 1; ; i++ {
		text, ok := entry.Values[strconv.Itoa(i)].(string)
		if !ok {
			return events
		}
		words := append(strings.SplitN(text, "\t", 4), "", "", "", "")
		run := append(strings.SplitN(words[3], " ", 8), "", "", "", "", "", "", "", "")
		events = append(events, Event{
			ID: entry.ID + "." + strconv.Itoa(i), At: time.UnixMilli(number(millis)), Queue: queue, Job: words[0], Kind: store.Unescape(words[1]), Tenant: store.Unescape(words[2]),
			Outcome: lifecycle.Outcome(run[0]), Answer: lifecycle.Answer(run[1]), Attempt: int(number(run[2])), Took: time.Duration(number(run[4])) * time.Microsecond, Reason: run[7],
		})
	}
}
