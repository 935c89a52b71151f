package inspect

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/fanout"
	"github.com/headgate/headgate/internal/partition"
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
var cursorPattern = regexp.MustCompile(`^([0-9]{1,13})-([0-9]{1,18})(?:@([0-9]{1,2}))?(?:\.([0-9]{1,4}))?$`)

// Events returns the newest n events of a queue or, if after is the ID of an event, the
// first n after that one; in both cases oldest first. The event of that ID may be deleted
// already: at least the last 5,000 are kept. A partition that does not answer is left out:
// its events come once it answers, but for those before the ID of one that came meanwhile.
// The error is a [validation.Error] if n is not within 1 to [MaxEvents] or after is not an
// ID. A queue that does not exist has no events.
func Events(ctx context.Context, client redis.UniversalClient, queue, after string, n int) ([]Event, error) {
	if n < 1 || n > MaxEvents {
		return nil, validation.Field("n", fmt.Sprintf("%d must be 1 to %d", n, MaxEvents))
	}
	if after != "" && !cursorPattern.MatchString(after) {
		return nil, validation.Field("after", check.Quote(after)+" is not the id of an event, such as 1767225600000-0.1")
	}
	events, err := eventsOf(ctx, client, queue, placeOf(after), n)
	if err != nil {
		return nil, fmt.Errorf("read the events of queue %q: %w", queue, err)
	}
	return events, nil
}

// eventPlace is the place of an event among those of all partitions of its queue: its entry, as it is
// ordered in Redis, then the partition, and then the event in the entry. The zero place is before all.
type eventPlace struct{ millis, seq, part, at int64 }

// placeOf reads the ID of an event.
func placeOf(id string) eventPlace {
	words := append(cursorPattern.FindStringSubmatch(id), "", "", "", "", "")
	number := func(i int) int64 { n, _ := strconv.ParseInt(words[i], 10, 64); return n }
	p := eventPlace{number(1), number(2), max(number(3), 1), number(4)}
	switch {
	case id == "":
		return eventPlace{}
	case words[4] == "": // all of the entry
		p.at = math.MaxInt64
	}
	return p
}

func (p eventPlace) compare(to eventPlace) int {
	return cmp.Or(cmp.Compare(p.millis, to.millis), cmp.Compare(p.seq, to.seq), cmp.Compare(p.part, to.part), cmp.Compare(p.at, to.at))
}

// eventsOf merges the events of all partitions.
func eventsOf(ctx context.Context, client redis.UniversalClient, queue string, after eventPlace, n int) ([]Event, error) {
	l, err := store.ReadLayout(ctx, client, queue)
	if err != nil {
		return nil, err
	}
	if l.Whole() {
		return readEvents(ctx, client, queue, after, n)
	}
	type part struct {
		now    time.Time
		events []Event
	}
	parts, errs := fanout.Ask(ctx, store.AwayAfter, l.Names(), func(ctx context.Context, name string) (p part, err error) {
		if p.now, err = store.Time(ctx, client, store.Key(name, "events")); err == nil {
			p.events, err = readEvents(ctx, client, name, after, n)
		}
		return p, err
	})
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var all []Event
	var until time.Time
	for i, p := range parts {
		if errs[i] != nil {
			continue
		}
		all = append(all, p.events...)
		if until.IsZero() || p.now.Before(until) {
			until = p.now
		}
	}
	if until.IsZero() {
		return nil, errs[0]
	}
	// Of nodes whose clocks differ, one may still get events before those of another. They must not
	// come behind the cursor of who has read these.
	all = slices.DeleteFunc(all, func(e Event) bool { return e.At.UnixMilli() >= until.UnixMilli() })
	slices.SortFunc(all, func(a, b Event) int { return placeOf(a.ID).compare(placeOf(b.ID)) })
	if after == (eventPlace{}) {
		return all[max(len(all)-n, 0):], nil
	}
	return all[:min(n, len(all))], nil
}

// eventsAtATime is how many entries of the stream are read at a time. Each has at least one event, or is of a call that
// is only counted.
const eventsAtATime = 100

// readEvents reads the events of a partition.
func readEvents(ctx context.Context, client redis.UniversalClient, queue string, after eventPlace, n int) (events []Event, err error) {
	stream, most := store.Key(queue, "events"), int64(min(n, eventsAtATime))
	if after == (eventPlace{}) {
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
	for begin := fmt.Sprintf("%d-%d", after.millis, after.seq); len(events) < n; {
		entries, err := client.XRangeN(ctx, stream, begin, "+", most).Result()
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			begin = "(" + entry.ID
			for _, event := range readEntry(queue, entry) {
				if placeOf(event.ID).compare(after) > 0 {
					events = append(events, event)
				}
			}
		}
		if len(entries) < int(most) {
			break
		}
	}
	return events[:min(n, len(events))], nil
}

// readEntry reads the events of an entry that record.lua wrote. Fields that it cannot
// read are zero.
func readEntry(queue string, entry redis.XMessage) []Event {
	number := func(s string) int64 { n, _ := strconv.ParseInt(s, 10, 64); return max(n, 0) }
	millis, _, _ := strings.Cut(entry.ID, "-")
	id := entry.ID
	_, part, _ := partition.Split(queue)
	if part > 1 {
		id += "@" + strconv.Itoa(part)
	}
	var events []Event
	for i := 1; ; i++ {
		text, ok := entry.Values[strconv.Itoa(i)].(string)
		if !ok {
			return events
		}
		words := append(strings.SplitN(text, "\t", 4), "", "", "", "")
		run := append(strings.SplitN(words[3], " ", 10), "", "", "", "", "", "", "", "", "", "")
		if run[0] == store.Lost || run[0] == store.Direct { // calls that are counted, and no events
			continue
		}
		events = append(events, Event{
			ID: id + "." + strconv.Itoa(i), At: time.UnixMilli(number(millis)), Queue: partition.QueueOf(queue), Job: words[0], Kind: store.Unescape(words[1]), Tenant: store.Unescape(words[2]),
			Outcome: lifecycle.Outcome(run[0]), Answer: lifecycle.Answer(run[1]), Attempt: int(number(run[2])), Took: time.Duration(number(run[4])) * time.Microsecond, Reason: run[9],
		})
	}
}
