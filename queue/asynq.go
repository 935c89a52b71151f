package queue

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"
)

//go:embed asynq.lua
var asynqLua string

//go:embed message.lua
var messageLua string

// This file and asynq.lua know asynq's own keys and formats;
// TestAsynqContract is what a new version of asynq has to pass.

const asynqQueues = "asynq:queues" // set of the names of all queues

// asynqCancellations is the channel on which asynq's tools name tasks to be cancelled.
const asynqCancellations = "asynq:cancel"

func asynqKey(queue, name string) string { return "asynq:{" + queue + "}:" + name }

// We count attempts ourselves: asynq archives a task whose retries are used up
// before it asks whether its error was a failure, and would archive a deferral.
const endlessRetry = math.MaxInt32

// asynqStatsKept is how long asynq keeps what it counts of a day.
const asynqStatsKept = 90 * 24 * time.Hour

// The handler of a job says how long a call may take. Tasks of asynq's own client say it,
// too, and the earlier end holds.
const endlessTimeout = 365 * 24 * time.Hour

// encodeMessage writes a task as asynq does (its TaskMessage, in protobuf). The
// group is left out: the script knows the lane and appends it.
func encodeMessage(queue, id, kind string, payload []byte, headers map[string]string, retention time.Duration) []byte {
	var m protoMessage
	m.text(1, kind)
	m.text(2, string(payload))
	m.text(3, id)
	m.text(4, queue)
	m.number(5, endlessRetry)
	m.number(8, int64(endlessTimeout.Seconds()))
	m.number(12, int64(retention.Seconds()))
	b := []byte(m)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		b = appendHeader(b, name, headers[name])
	}
	return b
}

// appendHeader adds one header to an encoded task.
func appendHeader(message []byte, name, value string) []byte {
	var entry protoMessage
	entry.text(1, name)
	entry.text(2, value)
	m := protoMessage(message)
	m.message(15, entry)
	return m
}

// registerQueues makes asynq's tools list the queues.
func registerQueues(ctx context.Context, client redis.UniversalClient, queues ...string) error {
	if err := client.SAdd(ctx, asynqQueues, queues).Err(); err != nil {
		return fmt.Errorf("register queues %q: %w", queues, err)
	}
	return nil
}

// leases lists the active jobs of a queue with the end of their leases as
// asynq wrote it: a text that changes every 5 s while their worker lives.
func leases(ctx context.Context, client redis.UniversalClient, queue string) (map[string]string, error) {
	entries, err := client.ZRangeWithScores(ctx, asynqKey(queue, "lease"), 0, -1).Result()
	if err != nil {
		return nil, err
	}
	active, err := client.LRange(ctx, asynqKey(queue, "active"), 0, -1).Result()
	if err != nil {
		return nil, err
	}
	seen := make(map[string]string, len(active))
	for _, id := range active {
		seen[id] = "" // active without a lease: asynq would never recover it
	}
	for _, entry := range entries {
		seen[fmt.Sprint(entry.Member)] = fmt.Sprintf("%.0f", entry.Score)
	}
	return seen, nil
}

// aggregatorBeside asks for a server whose GroupAggregator would swallow lanes: 1 where
// there is one. asynq does not say which server has one, but an aggregation set is its trace.
func aggregatorBeside(ctx context.Context, client redis.Cmdable, queue string) *redis.IntCmd {
	return client.Exists(ctx, asynqKey(queue, "aggregation_sets"))
}

// taskMessage is what we read of a task as asynq stores it.
type taskMessage struct {
	id, kind, failure string
	retries, retried  int
	headers           map[string]string
	payload           []byte
	retention         time.Duration
	completed, failed time.Time // to the second; zero: never

	// Of asynq's own client: how long a call may take, and until when; zero: no matter.
	timeout  time.Duration
	deadline time.Time
}

func (m taskMessage) tenant() string { return cmp.Or(m.headers[headerTenant], noTenant) }

// end is when a call that begins now is cut off.
func (m taskMessage) end(now time.Time, timeout time.Duration) time.Time {
	if m.timeout > 0 {
		timeout = min(timeout, m.timeout)
	}
	end := now.Add(timeout)
	if !m.deadline.IsZero() && m.deadline.Before(end) {
		return m.deadline
	}
	return end
}

// priority is one of high, normal and low.
func (m taskMessage) priority() string { return cmp.Or(m.headers[headerPriority], "normal") }

// decodeMessage is the way back from [encodeMessage] and asynq's own encoding.
func decodeMessage(b []byte) (taskMessage, error) {
	m := taskMessage{headers: map[string]string{}}
	moment := func(seconds uint64) time.Time { return time.Unix(int64(seconds), 0) }
	err := eachField(b, func(field protowire.Number, text []byte, number uint64) {
		switch field {
		case 1:
			m.kind = string(text)
		case 2:
			m.payload = text
		case 3:
			m.id = string(text)
		case 5:
			m.retries = int(number)
		case 6:
			m.retried = int(number)
		case 7:
			m.failure = string(text)
		case 8:
			m.timeout = time.Duration(number) * time.Second
		case 9:
			if number > 0 {
				m.deadline = moment(number)
			}
		case 11:
			m.failed = moment(number)
		case 12:
			m.retention = time.Duration(number) * time.Second
		case 13:
			m.completed = moment(number)
		case 15:
			var name, value string
			_ = eachField(text, func(field protowire.Number, text []byte, _ uint64) {
				if field == 1 {
					name = string(text)
				} else {
					value = string(text)
				}
			})
			m.headers[name] = value
		}
	})
	return m, err
}

// eachField hands out the fields of a protobuf message that are bytes or numbers.
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

// amend is an encoded task with other words about how often and when it failed or was
// completed, and why; zero: without them.
func amend(message []byte, retried int, failure string, failed, completed time.Time) []byte {
	out := make(protoMessage, 0, len(message)+len(failure)+32)
	for rest := message; len(rest) > 0; {
		field, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return message // it is no task of asynq's
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
