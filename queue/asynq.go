package queue

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"
)

// This file, asynqscripts.go and asynq.lua know asynq's own keys, formats and scripts;
// TestAsynqContract is what a new version of asynq has to pass.

//go:embed asynq.lua
var asynqLua string

const asynqQueues = "asynq:queues" // set of the names of all queues

func asynqKey(queue, name string) string { return "asynq:{" + queue + "}:" + name }

// We count attempts ourselves: asynq archives a task whose retries are used up
// before it asks whether its error was a failure, and would archive a deferral.
const endlessRetry = math.MaxInt32

// asynq's own timeout also runs while a job is held for its slot, so it is out
// of the way; the call has a timeout of its own.
const endlessTimeout = 365 * 24 * time.Hour

// encodeMessage writes a task as asynq does (its TaskMessage, in protobuf). The
// group is left out: the script knows the lane and appends it.
func encodeMessage(queue, id, kind string, payload []byte, headers map[string]string, retention time.Duration) []byte {
	var b []byte
	text := func(field protowire.Number, value string) {
		if value != "" {
			b = protowire.AppendTag(b, field, protowire.BytesType)
			b = protowire.AppendString(b, value)
		}
	}
	number := func(field protowire.Number, value int64) {
		if value != 0 {
			b = protowire.AppendTag(b, field, protowire.VarintType)
			b = protowire.AppendVarint(b, uint64(value))
		}
	}
	text(1, kind)
	text(2, string(payload))
	text(3, id)
	text(4, queue)
	number(5, endlessRetry)
	number(8, int64(endlessTimeout.Seconds()))
	number(12, int64(retention.Seconds()))
	for _, name := range sortedKeys(headers) {
		b = appendHeader(b, name, headers[name])
	}
	return b
}

// appendHeader adds one header to an encoded task.
func appendHeader(message []byte, name, value string) []byte {
	var entry []byte
	entry = protowire.AppendTag(entry, 1, protowire.BytesType)
	entry = protowire.AppendString(entry, name)
	entry = protowire.AppendTag(entry, 2, protowire.BytesType)
	entry = protowire.AppendString(entry, value)
	message = protowire.AppendTag(message, 15, protowire.BytesType)
	return protowire.AppendBytes(message, entry)
}

// registerQueue makes asynq's tools list the queue.
func registerQueue(ctx context.Context, client redis.UniversalClient, queue string) error {
	if err := client.SAdd(ctx, asynqQueues, queue).Err(); err != nil {
		return fmt.Errorf("register queue %q: %w", queue, err)
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

// asynqConfig is how every asynq.Server of ours is set up.
func asynqConfig(queues []string, concurrency int, shutdown time.Duration, logger *slog.Logger) asynq.Config {
	weights := make(map[string]int, len(queues))
	for _, queue := range queues {
		weights[queue] = 1
	}
	return asynq.Config{
		Queues:            weights,
		Concurrency:       concurrency,
		TaskCheckInterval: 15 * time.Millisecond,
		ShutdownTimeout:   shutdown,
		// replacedHook lets asynq's forwarder find nothing: it need not look often.
		DelayedTaskCheckInterval: 24 * time.Hour,
		RetryDelayFunc: func(_ int, err error, _ *asynq.Task) time.Duration {
			if again, ok := errors.AsType[*retryError](err); ok {
				return again.wait()
			}
			return 0
		},
		// Only a failed call counts as one: not a job on its way back to its lane.
		IsFailure: func(err error) bool {
			again, ok := errors.AsType[*retryError](err)
			return !ok || again.failed
		},
		Logger:   asynqLogger{logger},
		LogLevel: asynq.WarnLevel,
	}
}

// aggregatorBeside reports a server whose GroupAggregator would swallow lanes.
// asynq does not say which server has one, but an aggregation set is its trace.
func aggregatorBeside(ctx context.Context, client redis.UniversalClient, queue string) (bool, error) {
	n, err := client.Exists(ctx, asynqKey(queue, "aggregation_sets")).Result()
	return n > 0, err
}

// asynqLogger writes asynq's messages to ours.
type asynqLogger struct{ logger *slog.Logger }

func (l asynqLogger) Debug(args ...any) { l.logger.Debug("asynq", logMessage, fmt.Sprint(args...)) }
func (l asynqLogger) Info(args ...any)  { l.logger.Info("asynq", logMessage, fmt.Sprint(args...)) }
func (l asynqLogger) Warn(args ...any)  { l.logger.Warn("asynq", logMessage, fmt.Sprint(args...)) }
func (l asynqLogger) Error(args ...any) { l.logger.Error("asynq", logMessage, fmt.Sprint(args...)) }
func (l asynqLogger) Fatal(args ...any) { l.logger.Error("asynq", logMessage, fmt.Sprint(args...)) }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// taskMessage is what we read of a task as asynq stores it.
type taskMessage struct {
	id, kind, failure string
	retries, retried  int
	headers           map[string]string
	payload           []byte
	retention         time.Duration
	completed, failed time.Time // to the second; zero: never
}

func (m taskMessage) tenant() string {
	if tenant := m.headers[headerTenant]; tenant != "" {
		return tenant
	}
	return noTenant
}

func (m taskMessage) priority() Priority { return cmp.Or(Priority(m.headers[headerPriority]), Normal) }

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
