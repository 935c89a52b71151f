package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/validation"
)

// PinsField is the field of a queue's limits with the partitions of its pinned tenants: JSON, from tenant
// to partition. No script reads it.
const PinsField = "pins"

// Before is the field "from" of a queue's limits while its tenants move to other partitions: where they were.
type Before struct {
	Partitions int            `json:"partitions"`
	Pins       map[string]int `json:"pins,omitempty"`
}

// BeforeOf returns what is stored of a layout that was; nil if there was none.
func BeforeOf(l *partition.Layout) *Before {
	if l == nil {
		return nil
	}
	return &Before{l.N, l.Pins}
}

// SumField is the field of a queue's limits with the [partition.Layout.Sum] of its partitions; none for an
// undivided queue. Scripts refuse jobs of clients that know another layout.
const SumField = "layout"

// What follows the sum of a layout in a request for a tenant that moves: in which of its two partitions the
// caller expects it.
const (
	Leaves  = "<"
	Arrives = ">"
)

// LayoutOf reads the partitions of a queue from the fields "*" and [PinsField] of its limits. A queue
// without limits, or with damaged ones, has one: scripts report the damage. The error is a
// [validation.Error] for the name of a partition.
func LayoutOf(queue, limits, pins string) (partition.Layout, error) {
	var stored struct {
		Partitions int     `json:"partitions"`
		From       *Before `json:"from"`
	}
	l := partition.Layout{Queue: queue, N: 1}
	if partition.QueueOf(queue) != queue {
		return l, validation.NotFound("queue", "there is no queue "+check.Quote(queue)+": that is a partition of one")
	}
	if json.Unmarshal([]byte(limits), &stored) == nil && stored.Partitions != 0 {
		l.N = stored.Partitions
	}
	if pins != "" && json.Unmarshal([]byte(pins), &l.Pins) != nil {
		return l, fmt.Errorf("the pinned tenants of queue %q in Redis are damaged; publish its limits again", queue)
	}
	if stored.From != nil {
		l.From = &partition.Layout{Queue: queue, N: stored.From.Partitions, Pins: stored.From.Pins}
	}
	if l.Whole() && l.Pins == nil {
		return l, nil // whatever its name
	}
	return l, l.Check()
}

// ReadLayout reads the partitions of a queue.
func ReadLayout(ctx context.Context, client redis.UniversalClient, queue string) (partition.Layout, error) {
	text, err := StoredLimits(ctx, client, queue)
	if err != nil {
		return partition.Layout{}, fmt.Errorf("read the partitions of queue %q: %w", queue, err)
	}
	return LayoutOf(queue, text[0], text[1])
}

// AwayAfter is how long Redis may take to answer before a partition counts as away, and another
// one is asked.
const AwayAfter = time.Second

// StoredLimits reads the fields "*" and [PinsField] of a queue's limits. All partitions have the same: where
// the first one does not answer, another one is asked.
func StoredLimits(ctx context.Context, client redis.UniversalClient, queue string) ([]string, error) {
	type reply struct {
		text []string
		err  error
	}
	read := func(name string) reply {
		fields, err := client.HMGet(ctx, Key(name, "limits"), "*", PinsField).Result()
		if err != nil {
			return reply{nil, err}
		}
		return reply{Texts(fields), nil}
	}
	first := make(chan reply, 1)
	go func() { first <- read(queue) }()
	late := time.NewTimer(AwayAfter)
	defer late.Stop()
	select {
	case r := <-first:
		if r.err == nil || ctx.Err() != nil {
			return r.text, r.err
		}
		first <- r
	case <-late.C:
	}
	if text := storedElsewhere(ctx, client, queue, func(name string) []string { return read(name).text }); text != nil {
		return text, nil
	}
	r := <-first
	return r.text, r.err
}

// storedElsewhere returns what the first partition to answer has, of those that asynq lists besides the first
// one of the queue; nil if none has limits.
func storedElsewhere(ctx context.Context, client redis.UniversalClient, queue string, read func(name string) []string) []string {
	listed, err := AllPartitions(ctx, client)
	if err != nil {
		return nil
	}
	listed = slices.DeleteFunc(listed, func(name string) bool { return name == queue || partition.QueueOf(name) != queue })
	answers, late := make(chan []string, len(listed)), time.After(AwayAfter)
	for _, name := range listed {
		go func() { answers <- read(name) }()
	}
	for range listed {
		select {
		case text := <-answers:
			if text != nil && text[0] != "" {
				return text
			}
		case <-late:
			return nil
		}
	}
	return nil
}

// ReadLayouts reads the partitions of queues in one round trip.
func ReadLayouts(ctx context.Context, client redis.UniversalClient, queues ...string) ([]partition.Layout, error) {
	pipe := client.Pipeline()
	fields := make([]*redis.SliceCmd, len(queues))
	for i, queue := range queues {
		fields[i] = pipe.HMGet(ctx, Key(queue, "limits"), "*", PinsField)
	}
	if err := Execute(ctx, pipe); err != nil {
		return nil, fmt.Errorf("read the partitions of queues: %w", err)
	}
	layouts := make([]partition.Layout, len(queues))
	for i, queue := range queues {
		text, err := Texts(fields[i].Val()), error(nil)
		if layouts[i], err = LayoutOf(queue, text[0], text[1]); err != nil {
			return nil, err
		}
	}
	return layouts, nil
}

// FindJob returns the partition and the lane of a job; "" if there is no such job. The id of a job with a
// key has its tenant, and so its partition. It takes the same commands whether there is such a job or not,
// except for a task of asynq's client that workers have not seen yet: it is in the first partition, whatever
// its id is, and has no lane but that to which its message belongs.
func FindJob(ctx context.Context, client redis.UniversalClient, l partition.Layout, id string) (home, lane string, err error) {
	homes := l.Names()
	if tenant, _, named := strings.Cut(id, ":"); named {
		homes = l.Homes(Unescape(tenant))
		if !slices.Contains(homes, l.Queue) {
			homes = append(homes, l.Queue)
		}
	}
	pipe, tasks := client.Pipeline(), make([]*redis.SliceCmd, len(homes))
	for i, home := range homes {
		tasks[i] = pipe.HMGet(ctx, asynqwire.Key(home, "t:"+id), "state", "group")
	}
	if err := Execute(ctx, pipe); err != nil {
		return "", "", err
	}
	for i, task := range tasks {
		if fields := Texts(task.Val()); fields[1] != "" {
			return homes[i], fields[1], nil
		} else if fields[0] != "" {
			message, err := client.HGet(ctx, asynqwire.Key(homes[i], "t:"+id), "msg").Bytes()
			if err != nil {
				return "", "", err
			}
			m, err := asynqwire.Decode(message)
			return homes[i], rediskey.Escape(m.Tenant()) + ";kind=" + rediskey.Escape(m.Kind), err
		}
	}
	return "", "", nil
}
