package asynqwire

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"
)

// asynq's tools list the running servers, and what each of them runs. A worker appears
// there because it writes such an entry every 5 s.
const (
	serversKey = "asynq:servers" // sorted set of the keys of servers by when their entries expire, Unix seconds
	workersKey = "asynq:workers" // the same for the hashes of what they run

	// MaxShown is the maximum number of running jobs that a worker shows for each queue.
	MaxShown = 500
)

// Server is a worker as asynq's tools show it.
type Server struct {
	Host        string
	PID         int
	ID          string
	Concurrency int
	Queues      []string
	Started     time.Time
	Held        int // jobs that it holds
}

func (s Server) keys() (server, workers string) {
	name := fmt.Sprintf(":{%s:%d:%s}", s.Host, s.PID, s.ID)
	return serversKey + name, workersKey + name
}

// Tell adds the commands that show a worker for a while, and what it runs, by queue.
func Tell(ctx context.Context, pipe redis.Pipeliner, s Server, runs map[string][]Run, lasts time.Duration) {
	server, workers := s.keys()
	end := float64(time.Now().Add(lasts).Unix())
	var running []any
	for queue, runs := range runs {
		for _, run := range runs {
			running = append(running, run.ID, run.encode(s, queue))
		}
	}
	pipe.Set(ctx, server, s.encode(), lasts)
	pipe.ZAdd(ctx, serversKey, redis.Z{Score: end, Member: server})
	pipe.ZAdd(ctx, workersKey, redis.Z{Score: end, Member: workers})
	pipe.Del(ctx, workers)
	if len(running) > 0 {
		pipe.HSet(ctx, workers, running...)
		pipe.Expire(ctx, workers, lasts)
	}
}

// Leave adds the commands that remove a worker that has ended.
func Leave(ctx context.Context, pipe redis.Pipeliner, s Server) {
	server, workers := s.keys()
	pipe.Del(ctx, server)
	pipe.Del(ctx, workers)
	pipe.ZRem(ctx, serversKey, server)
	pipe.ZRem(ctx, workersKey, workers)
}

// encode returns asynq's ServerInfo, in protobuf.
func (s Server) encode() []byte {
	var m protoMessage
	m.text(1, s.Host)
	m.number(2, int64(s.PID))
	m.text(3, s.ID)
	m.number(4, int64(s.Concurrency))
	for _, queue := range s.Queues {
		var entry protoMessage
		entry.text(1, queue)
		entry.number(2, 1)
		m.message(5, entry)
	}
	m.text(7, "active")
	m.moment(8, s.Started)
	m.number(9, int64(s.Held))
	return m
}

// Run is a run as asynq's tools show it.
type Run struct {
	ID, Kind string
	Payload  []byte
	Began    time.Time
}

// encode returns asynq's WorkerInfo, in protobuf.
func (r Run) encode(s Server, queue string) []byte {
	var m protoMessage
	m.text(1, s.Host)
	m.number(2, int64(s.PID))
	m.text(3, s.ID)
	m.text(4, r.ID)
	m.text(5, r.Kind)
	m.text(6, string(r.Payload))
	m.text(7, queue)
	m.moment(8, r.Began)
	return m
}

// protoMessage is an encoded message to which fields are added.
type protoMessage []byte

func (m *protoMessage) text(field protowire.Number, value string) {
	if value != "" {
		*m = protowire.AppendString(protowire.AppendTag(*m, field, protowire.BytesType), value)
	}
}

func (m *protoMessage) number(field protowire.Number, value int64) {
	if value != 0 {
		*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), uint64(value))
	}
}

func (m *protoMessage) message(field protowire.Number, value protoMessage) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), value)
}

// moment adds a Timestamp of protobuf.
func (m *protoMessage) moment(field protowire.Number, at time.Time) {
	var value protoMessage
	value.number(1, at.Unix())
	value.number(2, int64(at.Nanosecond()))
	m.message(field, value)
}
