package queue

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/store"
)

// Fault is something in Redis that the scripts of a queue cannot understand, such
// as a key of another type or a field that is no number.
type Fault struct {
	// What names it, such as "job 0198…" or "lane acme"; "script" where a script
	// could not go on at all.
	What   string
	Reason string
	At     time.Time // when it was first seen, on the clock of Redis; zero: not known
}

// mostFaultText bounds the texts of a fault.
const mostFaultText = 400

// Faults lists what the scripts of a queue could not understand, by time: at most
// 100, and none when nothing was reported for an hour.
func Faults(ctx context.Context, client redis.UniversalClient, queue string) ([]Fault, error) {
	name := store.Key(queue, "faults")
	reports, err := client.HGetAll(ctx, name).Result()
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return []Fault{{What: name, Reason: err.Error()}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("faults of queue %q: %w", queue, err)
	}
	faults := make([]Fault, 0, len(reports))
	for what, text := range reports {
		fault := Fault{What: check.Printable(what, mostFaultText), Reason: check.Printable(text, mostFaultText)}
		first, reason, _ := strings.Cut(text, " ")
		if micros, err := strconv.ParseInt(first, 10, 64); err == nil {
			fault.At, fault.Reason = time.UnixMicro(micros), check.Printable(reason, mostFaultText)
		}
		faults = append(faults, fault)
	}
	slices.SortFunc(faults, func(a, b Fault) int { return cmp.Or(a.At.Compare(b.At), strings.Compare(a.What, b.What)) })
	return faults, nil
}

// faultLog logs each fault of a queue once.
type faultLog struct{ known map[Fault]bool }

func (l *faultLog) look(ctx context.Context, client redis.UniversalClient, queue string, logger *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	faults, err := Faults(ctx, client, queue)
	if err != nil {
		return err
	}
	known := make(map[Fault]bool, len(faults))
	for _, fault := range faults {
		known[fault] = true
		if !l.known[fault] {
			logger.Error("a script found what it cannot understand and left it as it is", logQueue, queue, logWhat, fault.What, logReason, fault.Reason)
		}
	}
	l.known = known
	return nil
}
