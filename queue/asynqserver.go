package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/encoding/protowire"
)

// asynq's tools list the servers that run, and what each of them runs. A worker is one,
// for as long as it says so every 5 s.
const (
	asynqServers = "asynq:servers" // sorted set of the keys of servers by the end of what they say, Unix seconds
	asynqWorkers = "asynq:workers" // the same for the hashes of what they run

	// mostShown is how many running jobs a worker names of each queue.
	mostShown = 500
)

func (i WorkerInfo) asynqKeys() (server, workers string) {
	name := fmt.Sprintf(":{%s:%d:%s}", i.Host, i.PID, i.ID)
	return asynqServers + name, asynqWorkers + name
}

// tellAsynq adds the commands that say that a worker runs, and what.
func tellAsynq(ctx context.Context, pipe redis.Pipeliner, info WorkerInfo, live map[string]*liveRuns) {
	server, workers := info.asynqKeys()
	end := float64(time.Now().Add(beatLasts).Unix())
	var running []any
	for queue, runs := range live {
		for _, run := range runs.shown() {
			running = append(running, run.id, run.encode(info, queue))
		}
	}
	pipe.Set(ctx, server, info.encode(), beatLasts)
	pipe.ZAdd(ctx, asynqServers, redis.Z{Score: end, Member: server})
	pipe.ZAdd(ctx, asynqWorkers, redis.Z{Score: end, Member: workers})
	pipe.Del(ctx, workers)
	if len(running) > 0 {
		pipe.HSet(ctx, workers, running...)
		pipe.Expire(ctx, workers, beatLasts)
	}
}

// leaveAsynq adds the commands that say that a worker has ended.
func leaveAsynq(ctx context.Context, pipe redis.Pipeliner, info WorkerInfo) {
	server, workers := info.asynqKeys()
	pipe.Del(ctx, server)
	pipe.Del(ctx, workers)
	pipe.ZRem(ctx, asynqServers, server)
	pipe.ZRem(ctx, asynqWorkers, workers)
}

// encode is asynq's ServerInfo, in protobuf.
func (i WorkerInfo) encode() []byte {
	var m protoMessage
	m.text(1, i.Host)
	m.number(2, int64(i.PID))
	m.text(3, i.ID)
	m.number(4, int64(i.Concurrency))
	for _, queue := range i.Queues {
		var entry protoMessage
		entry.text(1, queue)
		entry.number(2, 1)
		m.message(5, entry)
	}
	m.text(7, "active")
	m.moment(8, i.Started)
	m.number(9, int64(i.Held))
	return m
}

// shownRun is a run as asynq's tools show it.
type shownRun struct {
	id, kind string
	payload  []byte
	began    time.Time
}

// encode is asynq's WorkerInfo.
func (r shownRun) encode(info WorkerInfo, queue string) []byte {
	var m protoMessage
	m.text(1, info.Host)
	m.number(2, int64(info.PID))
	m.text(3, info.ID)
	m.text(4, r.id)
	m.text(5, r.kind)
	m.text(6, string(r.payload))
	m.text(7, queue)
	m.moment(8, r.began)
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

// moment is protobuf's Timestamp.
func (m *protoMessage) moment(field protowire.Number, at time.Time) {
	var value protoMessage
	value.number(1, at.Unix())
	value.number(2, int64(at.Nanosecond()))
	m.message(field, value)
}
