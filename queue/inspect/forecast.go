package inspect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/fluid"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

const (
	// maxLanes is how many lanes are read one by one. Of more lanes, about drawnLanes are
	// drawn at random and stand for all.
	maxLanes   = 5000
	drawnLanes = 1000

	// piecePause is the pause between two pieces of a reading in the background.
	piecePause = 20 * time.Millisecond

	sampledLanes = 24
	maxLogs      = 100
)

// forecast is everything that determines when a queue's jobs go, as it was read at one
// moment. A forecast that the Inspector shares is never changed: see copy and with.
type forecast struct {
	queue     string
	now       time.Time
	version   version
	rules     limits.Queue // without the differences of tenants
	limits    effective.Limits
	windows   string            // the calendars, for scripts
	beside    map[string]string // states of adaptive limits and of those with a ramp, by key
	hours     map[string][]float64
	calendars [][]int64 // by limit; nil: none
	pauses    map[string]string
	served    handlers
	lanes     []lane
	laneAt    map[string]int
	part      float64 // the part of all lanes that was drawn, 0 to 1
	buckets   []string
	bucketAt  map[string]int
	texts     []any                         // of the buckets, as stored in Redis
	states    []bucketState                 // of the buckets of the drawn lanes
	logs      map[int][2]float64            // permits left, and seconds until the oldest one comes back
	cost      map[string]float64            // mean cost of a job, by unit
	costs     map[string]map[string]float64 // the same, for lanes with a large enough sample
	run       *modelRun
	lost      int64 // when the buckets were lost that are not in Redis, µs; 0: never

	// For one question:
	shared  *forecast        // the forecast of which this is a copy
	fresh   bool             // the forecast was read for this question
	final   bool             // it is used even if something changed since
	asked   time.Time        // when it was asked
	backlog map[string]int64 // waiting jobs of the tenants in question, by escaped name
	seen    lookedAt         // what was read about the subject
}

// lane is a lane and the buckets of its limits.
type lane struct {
	store.Lane
	jobs    int64
	read    int64 // when it was read, µs
	buckets []int // of the limits in their order; -1 for a concurrency limit
	added   bool  // it was not drawn, and stands only for itself
}

// lookedAt is what explain.lua returns about one lane.
type lookedAt struct {
	place   place
	limits  []limitSeen
	cost    map[string]float64
	backlog int64 // of its tenant
}

type limitSeen struct {
	name, key, algorithm string
	next                 time.Time
}

// readForecast reads a forecast, in three round trips regardless of the size of the
// backlog, and in two more for each further 500 lanes.
func readForecast(ctx context.Context, client redis.UniversalClient, queue string, rest func(time.Duration)) (*forecast, error) {
	f := &forecast{
		queue: queue, part: 1, run: &modelRun{}, laneAt: map[string]int{}, bucketAt: map[string]int{},
		hours: map[string][]float64{}, logs: map[int][2]float64{}, beside: map[string]string{},
	}
	groups := asynqwire.Key(queue, "groups")
	pipe := client.Pipeline()
	version := readVersion(ctx, pipe, queue)
	stored, epoch := pipe.HGet(ctx, store.Key(queue, "limits"), "*"), pipe.HGet(ctx, store.Key(queue, "limits"), store.EpochField)
	all := pipe.SCard(ctx, groups)
	first := pipe.SScan(ctx, groups, 0, "", store.MaxKeys)
	pauses := pipe.HScan(ctx, store.Key(queue, "pauses"), 0, "", store.MaxKeys)
	overrides := pipe.HScan(ctx, store.Key(queue, "overrides"), 0, "", store.MaxKeys)
	if err := store.Execute(ctx, pipe); err != nil {
		return nil, err
	}
	f.version = versionOf(version.Val())
	var err error
	if f.limits.Queue, err = effective.QueueOf(queue, stored); err != nil {
		return nil, err
	}
	// Limits for direct calls alone hold no job.
	f.limits.Queue.Limits = slices.DeleteFunc(f.limits.Queue.Limits, func(l effective.Limit) bool { return l.For == limits.Direct })
	if f.rules, err = f.limits.Queue.Decode(); err != nil {
		return nil, err
	}
	f.lost = store.LostAt(epoch.Val())
	if f.pauses, err = store.RestOfHash(ctx, client, store.Key(queue, "pauses"), pauses); err != nil {
		return nil, err
	}
	changed, err := store.RestOfHash(ctx, client, store.Key(queue, "overrides"), overrides)
	if err != nil {
		return nil, err
	}
	if err := f.limits.ReadOverrides(changed); err != nil {
		return nil, err
	}
	names, err := lanesToRead(ctx, client, groups, all.Val(), first, rest)
	if err != nil {
		return nil, err
	}
	if all.Val() > maxLanes {
		f.part = min(1, float64(len(names))/float64(all.Val()))
	}
	if err := f.readLanes(ctx, client, names, rest); err != nil {
		return nil, err
	}
	f.asked = f.now
	f.setCalendars()
	if f.windows, err = f.limits.Queue.Calendars(f.now); err != nil {
		return nil, err
	}
	// Questions copy the openings that are cached here.
	for i := range f.lanes {
		if _, _, err := f.openings(&f.lanes[i]); err != nil {
			return nil, err
		}
	}
	f.readStates()
	rest(piecePause)
	return f, f.sample(ctx, client)
}

// setCalendars sets the calendar windows of the limits from now on.
func (f *forecast) setCalendars() {
	for _, limit := range f.rules.Limits {
		f.calendars = append(f.calendars, effective.Windows(limit, f.now, fluid.ExactOpenings))
	}
}

// lanesToRead returns the names of all lanes, of which the first were read, or of a
// random part of very many. Redis lists a set in the order of a secret hash, so the lanes
// that it lists from any cursor on are random. SRANDMEMBER takes longer.
func lanesToRead(ctx context.Context, client redis.UniversalClient, groups string, all int64, first *redis.ScanCmd, rest func(time.Duration)) ([]string, error) {
	names, cursor, err := first.Result()
	more := func() bool { return cursor != 0 }
	if all > maxLanes {
		names, cursor = nil, rand.Uint64()
		pieces := drawnLanes/store.MaxKeys + 1 // one may reach the end of the set
		more = func() bool { pieces--; return pieces >= 0 && len(names) < drawnLanes }
	}
	for err == nil && more() {
		rest(piecePause)
		var some []string
		some, cursor, err = client.SScan(ctx, groups, cursor, "", store.MaxKeys).Result()
		names = append(names, some...)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", groups, err)
	}
	if all > maxLanes {
		names = names[:min(len(names), drawnLanes)]
	}
	slices.Sort(names)
	return slices.Compact(names), nil // some may be listed twice
}

// readLanes adds lanes: their lengths, the limits of their tenants and the state of their
// buckets. The time of the forecast is that at which its first lanes were read.
func (f *forecast) readLanes(ctx context.Context, client redis.UniversalClient, names []string, rest func(time.Duration)) error {
	for {
		rest(piecePause)
		some := names[:min(len(names), store.MaxKeys)]
		now, err := f.readSome(ctx, client, some)
		if err != nil {
			return err
		}
		if f.now.IsZero() {
			f.now, f.limits.Now = now, now
		}
		if names = names[len(some):]; len(names) == 0 {
			return nil
		}
	}
}

// readSome reads one piece of readLanes, and returns the time of that.
func (f *forecast) readSome(ctx context.Context, client redis.UniversalClient, names []string) (time.Time, error) {
	var tenants, fields []string
	firstLane, firstBucket := len(f.lanes), len(f.buckets)
	f.lanes = append(f.lanes, make([]lane, len(names))...)
	lanes := f.lanes[firstLane:]
	seen := map[string]bool{}
	sole := ""
	if len(f.rules.Kinds) == 1 {
		sole = rediskey.Escape(f.rules.Kinds[0])
	}
	for i, name := range names {
		l := &lanes[i]
		*l = lane{Lane: store.ParseLane(name)}
		f.laneAt[name] = firstLane + i
		if l.Kind == "" {
			l.Kind = sole
		}
		if !seen[l.Tenant] {
			seen[l.Tenant] = true
			tenants, fields = append(tenants, l.Tenant), append(fields, "t:"+l.Tenant)
		}
	}
	if len(names) > 0 && slices.ContainsFunc(f.rules.Limits, limits.Limit.PerGroup) {
		// Whose buckets they use depends on what differs for the tenants.
		owns := client.HMGet(ctx, store.Key(f.queue, "limits"), fields...)
		if err := owns.Err(); err != nil {
			return time.Time{}, err
		}
		if err := f.limits.ReadTenants(tenants, owns.Val()); err != nil {
			return time.Time{}, err
		}
	}
	for i := range lanes {
		f.findBuckets(&lanes[i])
	}
	pipe := client.Pipeline()
	clock := store.AddTime(ctx, pipe, client, store.Key(f.queue, "waiting"))
	var owns, backlog *redis.SliceCmd
	var states []*redis.SliceCmd
	for chunk := range slices.Chunk(f.buckets[firstBucket:], store.MaxKeys) {
		states = append(states, pipe.MGet(ctx, chunk...))
	}
	beside := f.keysBeside(f.buckets[firstBucket:])
	texts := make([]*redis.StringCmd, len(beside))
	for i, key := range beside {
		texts[i] = pipe.Get(ctx, key)
	}
	lengths, alone := make([]*redis.IntCmd, len(lanes)), false
	for i := range lanes {
		if l := &lanes[i]; len(l.Attributes) > 0 || len(f.limits.Queue.Attributes) > 0 {
			lengths[i] = pipe.ZCard(ctx, asynqwire.Key(f.queue, "g:"+l.Name))
		} else {
			alone = true // its length is the backlog of its tenant
		}
	}
	if len(names) > 0 {
		owns = pipe.HMGet(ctx, store.Key(f.queue, "limits"), fields...)
	}
	if alone {
		backlog = pipe.HMGet(ctx, store.TenantsKey(f.queue), tenants...)
	}
	if err := store.Execute(ctx, pipe); err != nil || len(names) == 0 {
		return clock.Val(), err
	}
	if err := f.limits.ReadTenants(tenants, owns.Val()); err != nil {
		return time.Time{}, err
	}
	for _, state := range states {
		f.texts = append(f.texts, state.Val()...)
	}
	for i, text := range texts {
		f.beside[beside[i]] = text.Val()
	}
	waiting := map[string]int64{}
	if alone {
		waiting = waitingOf(tenants, backlog)
	}
	for i := range lanes {
		l := &lanes[i]
		if l.read = clock.Val().UnixMicro(); lengths[i] != nil {
			l.jobs = lengths[i].Val()
		} else {
			l.jobs = waiting[l.Tenant]
		}
	}
	return clock.Val(), nil
}

// findBuckets sets the buckets of a lane.
func (f *forecast) findBuckets(l *lane) {
	l.buckets = make([]int, len(f.rules.Limits))
	l.Group = f.limits.Tenants[l.Tenant].Group
	for j, limit := range f.rules.Limits {
		if l.buckets[j] = -1; f.limits.Queue.Limits[j].Spec.Algorithm == "cc" || !store.Holds(limit, &l.Lane) {
			continue
		}
		name := store.BucketKey(f.queue, limit, &l.Lane)
		at, ok := f.bucketAt[name]
		if !ok {
			at = len(f.buckets)
			f.bucketAt[name] = at
			f.buckets = append(f.buckets, name)
		}
		l.buckets[j] = at
	}
}

// waitingOf returns how many jobs of tenants wait, from their counts.
func waitingOf(tenants []string, reply *redis.SliceCmd) map[string]int64 {
	all := make(map[string]int64, len(tenants))
	for tenant, n := range store.ReadAllCounts(tenants, reply) {
		all[tenant] = n.Waiting
	}
	return all
}

// sample reads what jobs of some lanes cost, and the state of sliding window logs.
func (f *forecast) sample(ctx context.Context, client redis.UniversalClient) error {
	var some []any
	stride := max(1, len(f.lanes)/sampledLanes)
	for i := 0; i < len(f.lanes) && len(some) < sampledLanes; i += stride {
		some = append(some, f.lanes[i].Name)
	}
	var logs []permitLog
	for i := range f.lanes {
		if logs = f.logsOf(&f.lanes[i], logs); len(logs) >= maxLogs {
			break
		}
	}
	if f.cost = map[string]float64{"": 1}; len(some) == 0 {
		return nil
	}
	_, err := f.script(ctx, client, "", "", some, logs)
	return err
}

// permitLog is a sliding window log that is to be read.
type permitLog struct {
	bucket int
	words  string // of explain.lua
}

// logsOf adds the logs that apply to a lane and were not read yet.
func (f *forecast) logsOf(l *lane, logs []permitLog) []permitLog {
	for j, at := range l.buckets {
		if at < 0 || f.limits.Queue.Limits[j].Spec.Algorithm != "sl" {
			continue
		}
		_, known := f.logs[at]
		if !known && !slices.ContainsFunc(logs, func(log permitLog) bool { return log.bucket == at }) {
			spec := f.spec(j, l)
			logs = append(logs, permitLog{at, fmt.Sprintf("%s %d %d", f.buckets[at], spec.Window, spec.Burst)})
		}
	}
	return logs
}

// look reads from explain.lua everything that holds a lane, and the place of a job in it
// ("": no job). The time of the question becomes that of the script, unless everything
// was read for this question.
func (f *forecast) look(ctx context.Context, client redis.UniversalClient, subject, id string) error {
	if err := f.with(ctx, client, subject); err != nil {
		return err
	}
	f.logs = maps.Clone(f.logs)
	l := &f.lanes[f.indexOf(subject)]
	now, err := f.script(ctx, client, subject, id, nil, f.logsOf(l, nil))
	if err != nil {
		return err
	}
	f.backlog = map[string]int64{l.Tenant: f.seen.backlog}
	if !f.fresh {
		f.asked = now
		return nil
	}
	// The script ran a moment after the rest was read.
	for i := range f.seen.limits {
		f.seen.limits[i].next = f.seen.limits[i].next.Add(f.now.Sub(now))
	}
	return nil
}

// script runs explain.lua, and returns the time of that.
func (f *forecast) script(ctx context.Context, client redis.UniversalClient, subject, id string, some []any, logs []permitLog) (time.Time, error) {
	since := int64(0)
	if subject != "" {
		since = f.lanes[f.indexOf(subject)].read
	}
	args := append([]any{f.queue, f.windows, subject, id, len(some), since}, some...)
	logs = logs[:min(len(logs), maxLogs)]
	for _, log := range logs {
		args = append(args, log.words)
	}
	reply, err := store.ExplainScript.Run(ctx, client, store.ScriptKeys(f.queue), args...)
	if err != nil {
		if effective.Stale(err) && !f.final {
			err = errChanged // limits with new calendars were published
		}
		return time.Time{}, err
	}
	read := store.Read(reply)
	now := time.UnixMicro(read.Int())
	f.seen = lookedAt{backlog: read.Int()}
	of := read.List()
	version := version{of.Text(), of.Text()}
	f.seen.place = readPlace(read.List())
	for limits := read.List(); limits.More(); {
		l := limits.List()
		f.seen.limits = append(f.seen.limits, limitSeen{l.Text(), l.Text(), l.Text(), time.UnixMicro(l.Int())})
	}
	var own, all jobCosts
	own.read(read.List())
	f.seen.cost = own.mean()
	others, left := read.List(), read.List()
	if len(some) > 0 {
		f.costs = map[string]map[string]float64{}
		for _, name := range some {
			var costs jobCosts
			costs.read(others.List())
			all.add(costs)
			name := name.(string)
			if costs.jobs >= min(minSample, max(1, f.lanes[f.indexOf(name)].jobs)) {
				f.costs[name] = costs.mean()
			}
		}
		f.cost = all.mean()
	}
	for _, log := range logs {
		l := left.List()
		f.logs[log.bucket] = [2]float64{float64(l.Int()), float64(l.Int()-now.UnixMicro()) / 1e6}
	}
	switch err := cmp.Or(read.End(), of.End(), others.End(), left.End()); {
	case err != nil:
		return time.Time{}, err
	case version != f.version && !f.final && f.shared != nil:
		return time.Time{}, errChanged
	}
	return now, nil
}

// place is the place of a job in its lane, and numbers of the lane; see explain.lua.
type place struct{ rank, score, length, bandEnd, lowerOlder, came int64 }

// readPlace reads a place; it is zero without a lane.
func readPlace(r *store.Reply) (p place) {
	if r.More() {
		p = place{r.Int(), r.Int(), r.Int(), r.Int(), r.Int(), r.Int()}
	}
	return p
}

// minSample is how many jobs of a lane must be sampled to know the mean cost of the
// others.
const minSample = 8

// costOf returns what the jobs of a lane cost.
func (f *forecast) costOf(l *lane) map[string]float64 {
	if own := f.costs[l.Name]; own != nil {
		return own
	}
	return f.cost
}

// jobCosts is the sum of the costs of jobs by unit; "" is for limits without a unit.
type jobCosts struct {
	jobs int64
	sum  map[string]float64
}

// read adds jobs, from their hg_cost and hg_costs.
func (c *jobCosts) read(list *store.Reply) {
	one := jobCosts{sum: map[string]float64{}}
	for list.More() {
		one.jobs++
		one.sum[""] += list.Float()
		for part := range strings.SplitSeq(list.Text(), ";") {
			if unit, text, ok := strings.Cut(part, "="); ok {
				if n, err := strconv.ParseFloat(text, 64); err == nil {
					one.sum[unit] += n
				}
			}
		}
	}
	c.add(one)
}

func (c *jobCosts) add(more jobCosts) {
	if c.sum == nil {
		c.sum = map[string]float64{}
	}
	c.jobs += more.jobs
	for unit, n := range more.sum {
		c.sum[unit] += n
	}
}

// mean returns the mean cost of a job; 1 permit if there are no jobs.
func (c jobCosts) mean() map[string]float64 {
	if c.jobs == 0 {
		return map[string]float64{"": 1}
	}
	mean := map[string]float64{}
	for unit, n := range c.sum {
		mean[unit] = n / float64(c.jobs)
	}
	return mean
}

// pausedUntil returns when the pauses that hold a lane end, in seconds from now; +Inf if
// they last until resumed.
func (f *forecast) pausedUntil(l *lane) float64 {
	if len(f.pauses) == 0 {
		return 0 // this runs for thousands of lanes
	}
	until := 0.0
	for _, scope := range f.scopesOf(l) {
		if text, ok := f.pauses[scope]; ok {
			until = max(until, f.until(store.PausedUntil(text)))
		}
	}
	return until
}

func (*forecast) scopesOf(l *lane) []string {
	return append(store.PauseScopes(l.Tenant, l.Kind), store.HoldScopes(l.Tenant, l.Kind, l.Value(limits.EndpointAttribute))...)
}

// until returns a time as seconds from now.
func (f *forecast) until(micros int64) float64 {
	if micros >= store.Endless {
		return math.Inf(1)
	}
	return float64(micros-f.now.UnixMicro()) / 1e6
}

// at reverses until; the zero time for one that is not known.
func (f *forecast) at(seconds float64) time.Time {
	if math.IsInf(seconds, 1) || seconds > 100*365*24*3600 {
		return time.Time{}
	}
	return f.now.Add(time.Duration(seconds * 1e9))
}

// notBefore is like at, but returns the time of the question for jobs that should have
// gone earlier.
func (f *forecast) notBefore(seconds float64) time.Time {
	at := f.at(seconds)
	if !at.IsZero() && at.Before(f.asked) {
		return f.asked
	}
	return at
}
