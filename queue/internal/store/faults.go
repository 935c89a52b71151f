package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
)

// Fault is damaged data in Redis that the scripts of a queue found, such as a key of
// another type or a field that is not a number.
type Fault struct {
	// What names it, such as "job 0198…" or "lane acme"; "script" if a script could not
	// run at all.
	What   string
	Reason string
	At     time.Time // when it was first seen, by the clock of Redis; zero: not known
}

// ReportFault reports a fault that a worker found in what several partitions or queues share. At is by the clock of Redis.
func ReportFault(ctx context.Context, client redis.UniversalClient, queue string, fault Fault) error {
	name := Key(queue, "faults")
	if n, err := client.HLen(ctx, name).Result(); err != nil || n >= maxFaults {
		return err
	}
	pipe := client.Pipeline()
	pipe.HSetNX(ctx, name, fault.What, fmt.Sprint(fault.At.UnixMicro(), " ", fault.Reason))
	pipe.PExpire(ctx, name, faultsKept)
	return Execute(ctx, pipe)
}

const ( // as MAX_FAULTS and FAULTS_MS in plan.lua
	maxFaults  = 100
	faultsKept = time.Hour
)

// MaxFaultText is the maximum length of the texts of a fault.
const MaxFaultText = 400

// ReadFaults returns the faults of a queue, by time: at most 100, and none if no fault
// was reported for an hour.
func ReadFaults(ctx context.Context, client redis.UniversalClient, queue string) ([]Fault, error) {
	name := Key(queue, "faults")
	reports, err := client.HGetAll(ctx, name).Result()
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return []Fault{{What: name, Reason: err.Error()}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("faults of queue %q: %w", queue, err)
	}
	faults := make([]Fault, 0, len(reports))
	for what, text := range reports {
		fault := Fault{What: check.Printable(what, MaxFaultText), Reason: check.Printable(text, MaxFaultText)}
		first, reason, _ := strings.Cut(text, " ")
		if micros, err := strconv.ParseInt(first, 10, 64); err == nil {
			fault.At, fault.Reason = time.UnixMicro(micros), check.Printable(reason, MaxFaultText)
		}
		faults = append(faults, fault)
	}
	slices.SortFunc(faults, func(a, b Fault) int { return cmp.Or(a.At.Compare(b.At), strings.Compare(a.What, b.What)) })
	return faults, nil
}
