package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"

	"github.com/headgate/headgate/internal/fanout"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/logkey"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

const noEviction = "noeviction"

// evictionPolicy returns the maxmemory-policy of Redis; "" if Redis does not allow the
// question. In a cluster it is the policy of a primary that evicts, if there is one of those that
// answer.
func evictionPolicy(ctx context.Context, client redis.UniversalClient) (string, error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return policyOf(ctx, client)
	}
	var mu sync.Mutex
	worst, answered, away := noEviction, false, error(nil)
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		policy, err := policyOf(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		if store.Unreachable(err) {
			away = err
			return nil
		}
		answered = true
		if policy != noEviction && (policy != "" || worst == noEviction) {
			worst = policy
		}
		return err
	})
	if !answered {
		err = cmp.Or(err, away)
	}
	return worst, err
}

// policyOf asks one server. A server that rejects the question is not an error: the policy
// is "".
func policyOf(ctx context.Context, client redis.UniversalClient) (string, error) {
	m, err := memoryOf(ctx, client)
	return m.policy, err
}

// memory is what a server says of its memory.
type memory struct {
	policy    string // maxmemory-policy; "" if the server does not say
	used, max int64  // bytes that count towards maxmemory, and maxmemory; 0: none, or the server does not say
}

func memoryOf(ctx context.Context, client redis.UniversalClient) (memory, error) {
	info := redis.NewStringCmd(ctx, "info", "memory")
	err := client.Process(ctx, onceCmd{info}) // the callers retry themselves
	facts := parseInfo(info.Val())
	if policy := facts["maxmemory_policy"]; policy != "" {
		bytes := func(name string) int64 {
			n, _ := strconv.ParseInt(facts[name], 10, 64) // 0 if it is not a number
			return n
		}
		return memory{policy, bytes("used_memory") - bytes("mem_not_counted_for_evict"), bytes("maxmemory")}, nil
	}
	if _, answered := errors.AsType[redis.Error](err); err != nil && !answered {
		return memory{}, err
	}
	config, err := client.ConfigGet(ctx, "maxmemory-policy").Result()
	if _, answered := errors.AsType[redis.Error](err); err != nil && !answered {
		return memory{}, err
	}
	return memory{policy: config["maxmemory-policy"]}, nil
}

// onceCmd is a command that go-redis does not retry.
type onceCmd struct{ *redis.StringCmd }

func (onceCmd) NoRetry() bool { return true }

// refuseEviction returns an error if jobs could be lost under an eviction policy.
func refuseEviction(policy string) error {
	if policy == "" || policy == noEviction {
		return nil
	}
	return fmt.Errorf("%w (maxmemory-policy %s), and jobs with them: set maxmemory-policy noeviction", ErrEvicts, policy)
}

// fitness is what a client knows of its Redis: whether it may evict accepted jobs, and whether it has
// memory for more. It asks at most once a second, or when it has sent an eighth of what was left: not
// for each job, and still before several clients together have filled the rest.
type fitness struct {
	fullAt float64 // part of maxmemory from which jobs are refused
	asking singleflight.Group

	mu    sync.Mutex
	nodes map[string]*nodeFitness // by address; "" unless it is a cluster
}

// nodeFitness is the answer of one server.
type nodeFitness struct {
	at   time.Time
	err  error // [ErrRedisFull], or nil
	left int64 // bytes that may be sent before it is asked again
}

// check returns an error if the server of a queue is not to get another n bytes of jobs.
func (f *fitness) check(ctx context.Context, client redis.UniversalClient, queue string, n int) error {
	addr := ""
	if cluster, ok := client.(*redis.ClusterClient); ok {
		node, err := cluster.MasterForKey(ctx, store.ScriptKeys(queue)[0])
		if err != nil {
			return err
		}
		client, addr = node, node.Options().Addr
	}
	if known, err := f.known(addr, int64(n)); known {
		return err
	}
	answer := f.asking.DoChan(addr, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.Timeout)
		defer cancel()
		return nil, f.ask(ctx, client, addr)
	})
	select {
	case a := <-answer:
		return a.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// known returns whether the latest answer of a server still holds, and which error follows from it.
func (f *fitness) known(addr string, n int64) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	node := f.nodes[addr]
	if node == nil || time.Since(node.at) >= time.Second {
		return false, nil
	}
	if node.err == nil && node.left < n {
		return false, nil
	}
	node.left -= n
	return true, node.err
}

// ask asks a server, and keeps its answer unless that must be mended by hand.
func (f *fitness) ask(ctx context.Context, client redis.UniversalClient, addr string) error {
	m, err := memoryOf(ctx, client)
	if err == nil {
		err = refuseEviction(m.policy)
	}
	if err != nil {
		return err
	}
	node := &nodeFitness{at: time.Now(), left: math.MaxInt64}
	if m.max > 0 {
		left := int64(f.fullAt*float64(m.max)) - m.used
		node.left = max(left/8, m.max/1024)
		if left <= 0 {
			node.err = fmt.Errorf("%w: it uses %s of maxmemory %s, and new jobs are refused from %.0f%%",
				ErrRedisFull, byteText(m.used), byteText(m.max), 100*f.fullAt)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.nodes == nil {
		f.nodes = map[string]*nodeFitness{}
	}
	f.nodes[addr] = node
	return node.err
}

// byteText returns a number of bytes in MB.
func byteText(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/(1<<20)) }

// seekReplicas warns once of each partition whose jobs need a replica while its primary has none. What
// it cannot read now, it reads with the next check.
func (s *session) seekReplicas(ctx context.Context) {
	for _, queue := range s.queues {
		published, err := effective.ReadQueue(ctx, s.redis, queue.Queue)
		if err != nil {
			continue
		}
		for _, home := range queue.Names() {
			alone := false
			if published.Durability == limits.Replicated {
				primary, err := primaryOf(ctx, s.redis, store.Key(home, "limits"))
				if err != nil {
					continue
				}
				info, err := primary.Info(ctx, "replication").Result()
				if err != nil {
					continue
				}
				alone = parseInfo(info)["connected_slaves"] == "0"
			}
			if alone && !s.alone[home] {
				s.logger.Warn("this redis has no replica, so no job of the queue is accepted: connect one, or take durability: replicated out of the queue's limits", logkey.Queue, home)
			}
			s.alone[home] = alone
		}
	}
}

// CheckRedis returns why [Worker.Run] would refuse a Redis: it does not answer, is too old, a
// replica, or evicts keys.
func CheckRedis(ctx context.Context, client redis.UniversalClient) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	_, _, err := checkRedis(ctx, client)
	return err
}

// checkRedis returns what Redis says of itself and its eviction policy, "" if that is not known.
func checkRedis(ctx context.Context, client redis.UniversalClient) (facts map[string]string, policy string, err error) {
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, "", fmt.Errorf("queue: redis: %w", err)
	}
	info, err := client.Info(ctx).Result()
	if err != nil {
		return nil, "", fmt.Errorf("queue: redis: %w", err)
	}
	facts = parseInfo(info)
	if version := facts["redis_version"]; version != "" {
		major, _, _ := strings.Cut(version, ".")
		if n, err := strconv.Atoi(major); err == nil && n < 7 {
			return nil, "", fmt.Errorf("queue: redis %s is too old: 7.0 or later is needed", version)
		}
	}
	if role := facts["role"]; role == "slave" {
		return nil, "", errors.New("queue: this redis is a replica: connect to its master")
	}
	policy, err = evictionPolicy(ctx, client)
	if err == nil {
		err = refuseEviction(policy)
	}
	if err != nil {
		return nil, "", fmt.Errorf("queue: %w", err)
	}
	return facts, policy, nil
}

// checkQueues adds the queues to asynq's list of queues. It returns an error if an asynq
// server aggregates the groups of a queue, because it would consume the lanes.
func (s *session) checkQueues(ctx context.Context) error {
	homes := s.homes()
	if err := asynqwire.RegisterQueues(ctx, s.redis, homes...); err != nil {
		return err
	}
	pipe := s.redis.Pipeline()
	besides := make([]*redis.IntCmd, len(homes))
	for i, home := range homes {
		besides[i] = asynqwire.AggregatorBeside(ctx, pipe, home)
	}
	if err := store.Execute(ctx, pipe); err != nil {
		return fmt.Errorf("queue: check the queues: %w", err)
	}
	for i, beside := range besides {
		if beside.Val() > 0 {
			return fmt.Errorf("queue: an asynq server aggregates the groups of queue %q, which are lanes of jobs: give that server a queue of its own", homes[i])
		}
	}
	return nil
}

// warn checks Redis before the worker starts, and logs risks.
func (w *Worker) warn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	facts, policy, err := checkRedis(ctx, w.redis)
	if err != nil {
		return err
	}
	if policy == "" {
		w.logger.Warn("cannot check whether this redis evicts keys; make sure that maxmemory-policy is noeviction")
	}
	if facts["aof_enabled"] == "0" {
		w.logger.Warn("this redis has no append-only file: if it crashes, jobs accepted since its last snapshot are lost; set appendonly yes")
	}
	return nil
}

// begin checks Redis before the worker starts, and returns its first session. In a Cluster the worker starts if
// a part of the nodes answers, and the check of the others follows when they do: otherwise one node that is away
// would end a fleet that is restarted meanwhile.
func (w *Worker) begin(ctx context.Context) (*session, error) {
	err := w.warn(ctx)
	if _, cluster := w.redis.(*redis.ClusterClient); err != nil && (!cluster || !passing(err)) {
		return nil, err
	}
	queues, unknown := w.learn(ctx)
	if unknown != nil {
		return nil, cmp.Or(err, unknown)
	}
	s := w.session(queues)
	return s, s.usable(ctx, err)
}

// readiness returns why the worker cannot serve any of its queues. In a Cluster it serves those whose
// nodes answer.
func (s *session) readiness(ctx context.Context) error {
	return s.usable(ctx, CheckRedis(ctx, s.redis))
}

// usable is [session.readiness] after a check of Redis with this result.
func (s *session) usable(ctx context.Context, err error) error {
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, store.Timeout)
		defer cancel()
		s.seekReplicas(ctx)
		err = s.checkQueues(ctx)
	}
	if err == nil {
		s.setAway(nil)
		return nil
	}
	return s.without(ctx, err)
}

// without returns nil if the check failed because of nodes whose queues and partitions the worker can do
// without, as long as others answer; otherwise err.
func (s *session) without(ctx context.Context, err error) error {
	if !passing(err) || ctx.Err() != nil {
		return err
	}
	away := s.away(ctx)
	if len(away) == len(s.homes()) {
		return err
	}
	s.logger.Warn("a node of the redis cluster does not answer; the queues of others are served", "away", away, logkey.Error, err)
	s.setAway(away)
	return nil
}

// away returns the queues and partitions whose Redis does not answer.
func (s *session) away(ctx context.Context) []string {
	homes := s.homes()
	cluster, ok := s.redis.(*redis.ClusterClient)
	if !ok {
		return homes
	}
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	_, errs := fanout.Each(homes, func(home string) (time.Time, error) { return store.Time(ctx, cluster, store.Key(home, "waiting")) })
	var away []string
	for i, home := range homes {
		if errs[i] != nil {
			away = append(away, home)
		}
	}
	return away
}

func parseInfo(info string) map[string]string {
	facts := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			facts[name] = value
		}
	}
	return facts
}
