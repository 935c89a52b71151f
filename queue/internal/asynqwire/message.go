// Package asynqwire defines asynq's keys, messages and heartbeats for the other packages.
// A new version of asynq has to pass TestAsynqContract.
package asynqwire

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate/internal/redisscript"
)

// Lua is the library of functions for asynq's keys and task states.
//
//go:embed asynq.lua
var Lua string

// MessageLua is the library that reads asynq's task messages.
//
//go:embed message.lua
var MessageLua string

const Queues = "asynq:queues" // set of the names of all queues

// Cancellations is the channel on which asynq's tools publish the ids of tasks to be
// cancelled.
const Cancellations = "asynq:cancel"

// Key returns the name of one of asynq's keys for a queue.
func Key(queue, name string) string { return "asynq:{" + queue + "}:" + name }

// EndlessRetry is the number of retries in each task. Headgate counts attempts itself:
// asynq archives a task whose retries are used up before it asks whether its error was a
// failure, and so would archive a deferral.
const EndlessRetry = math.MaxInt32

// StatsKept is how long asynq keeps the counts of a day.
const StatsKept = 90 * 24 * time.Hour

// EndlessTimeout is the timeout in each task. The handler of a job determines how long a
// call may take. Tasks of asynq's own client have timeouts, too; then the earlier end
// counts.
const EndlessTimeout = 365 * 24 * time.Hour

// Encode writes a task as asynq does (its TaskMessage, in protobuf). The group is left
// out: the script knows the lane and appends it.
func Encode(queue, id, kind string, payload []byte, headers map[string]string, retention time.Duration) []byte {
	var m protoMessage
	m.text(1, kind)
	m.text(2, string(payload))
	m.text(3, id)
	m.text(4, queue)
	m.number(5, EndlessRetry)
	m.number(8, int64(EndlessTimeout.Seconds()))
	m.number(12, int64(retention.Seconds()))
	b := []byte(m)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		b = AppendHeader(b, name, headers[name])
	}
	return b
}

// AppendHeader adds one header to an encoded task.
func AppendHeader(message []byte, name, value string) []byte {
	var entry protoMessage
	entry.text(1, name)
	entry.text(2, value)
	m := protoMessage(message)
	m.message(15, entry)
	return m
}

// RegisterQueues makes asynq's tools list the queues.
func RegisterQueues(ctx context.Context, client redis.UniversalClient, queues ...string) error {
	pipe := client.Pipeline()
	pipe.SAdd(ctx, Queues, queues)
	// A worker also starts if Redis is full.
	if err := redisscript.ExecAnyway(ctx, client, pipe); err != nil {
		return fmt.Errorf("register queues %q: %w", queues, err)
	}
	return nil
}

// Leases returns the active jobs of a queue with the end of their leases, as asynq wrote
// it: a text that changes every 5 s while their worker is alive. The text is "" for a job
// without a lease.
func Leases(ctx context.Context, client redis.UniversalClient, queue string) (map[string]string, error) {
	entries, err := client.ZRangeWithScores(ctx, Key(queue, "lease"), 0, -1).Result()
	if err != nil {
		return nil, err
	}
	active, err := client.LRange(ctx, Key(queue, "active"), 0, -1).Result()
	if err != nil {
		return nil, err
	}
	seen := make(map[string]string, len(active))
	for _, id := range active {
		seen[id] = "" // active without a lease; asynq would never recover it
	}
	for _, entry := range entries {
		seen[fmt.Sprint(entry.Member)] = fmt.Sprintf("%.0f", entry.Score)
	}
	return seen, nil
}

// AggregatorBeside asks whether a server with a GroupAggregator runs, which would take
// the jobs out of lanes: the command returns 1 if one does. asynq does not say which
// servers have one, but an aggregation set shows it.
func AggregatorBeside(ctx context.Context, client redis.Cmdable, queue string) *redis.IntCmd {
	return client.Exists(ctx, Key(queue, "aggregation_sets"))
}

// Message is what Headgate reads of a task as asynq stores it.
type Message struct {
	Kind, Failure     string
	Retries, Retried  int
	Headers           map[string]string
	Payload           []byte
	Retention         time.Duration
	Completed, Failed time.Time // to the second; zero: never

	// In tasks of asynq's own client: how long a call may take, and until when; zero: no
	// limit.
	timeout  time.Duration
	deadline time.Time
}

func (m Message) Tenant() string { return cmp.Or(m.Headers[HeaderTenant], NoTenant) }

// MaxAttempts returns how many attempts the task has: those of its header, or one more than its retries; for a job of
// Headgate without the header, byDefault.
func (m Message) MaxAttempts(byDefault int) int {
	if n, err := strconv.Atoi(m.Headers[HeaderMaxAttempts]); err == nil && n > 0 {
		return n
	}
	if m.Retries != EndlessRetry {
		return m.Retries + 1
	}
	return byDefault
}

// End returns when a call that begins now is cut off.
func (m Message) End(now time.Time, timeout time.Duration) time.Time {
	if m.timeout > 0 {
		timeout = min(timeout, m.timeout)
	}
	end := now.Add(timeout)
	if !m.deadline.IsZero() && m.deadline.Before(end) {
		return m.deadline
	}
	return end
}

// Priority returns high, normal or low.
func (m Message) Priority() string { return cmp.Or(m.Headers[HeaderPriority], "normal") }

// Decode reads what [Encode] and asynq's own clients write.
func Decode(b []byte) (Message, error) {
	m := Message{Headers: map[string]string{}}
	moment := func(seconds uint64) time.Time { return time.Unix(int64(seconds), 0) }
	err := eachField(b, func(field protowire.Number, text []byte, number uint64) {
		switch field {
		case 1:
			m.Kind = string(text)
		case 2:
			m.Payload = text
		case 5:
			m.Retries = int(number)
		case 6:
			m.Retried = int(number)
		case 7:
			m.Failure = string(text)
		case 8:
			m.timeout = time.Duration(number) * time.Second
		case 9:
			if number > 0 {
				m.deadline = moment(number)
			}
		case 11:
			m.Failed = moment(number)
		case 12:
			m.Retention = time.Duration(number) * time.Second
		case 13:
			m.Completed = moment(number)
		case 15:
			var name, value string
			_ = eachField(text, func(field protowire.Number, text []byte, _ uint64) {
				if field == 1 {
					name = string(text)
				} else {
					value = string(text)
				}
			})
			m.Headers[name] = value
		}
	})
	return m, err
}

// eachField calls do with each field of a protobuf message that is bytes or a number.
func eachField(b []byte, do func(field protowire.Number, text []byte, number uint64)) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("decode the task: %w", protowire.ParseError(n))
		}
		b = b[n:]
		var text []byte
		var number uint64
		switch kind {
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(field, kind, b)
		}
		if n < 0 {
			return fmt.Errorf("decode the task: %w", protowire.ParseError(n))
		}
		do(field, text, number)
		b = b[n:]
	}
	return nil
}

// Amend returns an encoded task with another count of retries, another failure, and other
// times at which it failed or was completed. Zero values remove the fields.
func Amend(message []byte, retried int, failure string, failed, completed time.Time) []byte {
	out := make(protoMessage, 0, len(message)+len(failure)+32)
	for rest := message; len(rest) > 0; {
		field, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return message // not a task of asynq's
		}
		size := protowire.ConsumeFieldValue(field, kind, rest[n:])
		if size < 0 {
			return message
		}
		if field != 6 && field != 7 && field != 11 && field != 13 {
			out = append(out, rest[:n+size]...)
		}
		rest = rest[n+size:]
	}
	seconds := func(at time.Time) int64 {
		if at.IsZero() {
			return 0
		}
		return at.Unix()
	}
	out.number(6, int64(retried))
	out.text(7, failure)
	out.number(11, seconds(failed))
	out.number(13, seconds(completed))
	return out
}
