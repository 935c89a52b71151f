package queue

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
)

//go:embed explain.lua
var explainLua string

var explainScript = newScript(explainLua)

const (
	// mostLanes is how many lanes are looked at one by one; of more, as many are
	// drawn by chance and stand for all.
	mostLanes = 5000

	// mostKeys is how many keys one command reads.
	mostKeys = 500

	sampledLanes = 24
	mostLogs     = 100
)

// forecast is what decides when a queue's jobs go, as it was read at one moment.
type forecast struct {
	queue     string
	now       time.Time
	rules     QueueLimits // without what differs by tenant
	limits    effective
	adapt     map[string]string // of adaptive limits, by bucket
	hours     map[string][]float64
	calendars [][]int64 // by limit; nil: none
	pauses    map[string]string
	backlog   map[string]string // by escaped tenant; '*' for all
	lanes     []lane
	part      float64 // of all lanes, those that were read
	buckets   []string
	texts     []any              // of the buckets, as they are in Redis
	logs      map[int][2]float64 // left, and seconds until the oldest permit comes back
	cost      map[string]float64 // what jobs cost on average, by unit
	seen      lookedAt           // of the subject
}

// lane is one lane and what it stands under.
type lane struct {
	name, tenant, kind string
	attributes         [][2]string
	jobs               int64
	buckets            []int // of the limits in their order; -1: of a concurrency limit
}

// value is what limits mean by an attribute of the lane.
func (l *lane) value(name string) string {
	if name == "tenant" {
		return l.tenant
	}
	for _, attr := range l.attributes {
		if attr[0] == name {
			return attr[1]
		}
	}
	return ""
}

// lookedAt is what explain.lua says of one lane.
type lookedAt struct {
	place  []int64
	limits []limitSeen
	cost   map[string]float64
}

type limitSeen struct {
	name, key, algorithm string
	next                 time.Time
	blocked              int64 // lanes that wait for a permit of it
}

// openForecast begins with the limits of a queue.
func openForecast(ctx context.Context, client redis.UniversalClient, queue string) (*forecast, error) {
	f := &forecast{queue: queue, part: 1}
	var err error
	if f.limits.queue, err = readStored(ctx, client, queue); err != nil {
		return nil, err
	}
	f.rules, err = f.limits.queue.limits()
	return f, err
}

// read reads what there is to know. subject is a lane that matters even when it
// is empty ("": none), and id a job of it ("": none). It takes three round trips
// whatever the depth of the backlog, and the state of every lane's buckets.
func (f *forecast) read(ctx context.Context, client redis.UniversalClient, subject, id string) error {
	queue := f.queue
	pipe := client.Pipeline()
	groups := pipe.SRandMemberN(ctx, asynqKey(queue, "groups"), mostLanes)
	all := pipe.SCard(ctx, asynqKey(queue, "groups"))
	backlog := pipe.HGetAll(ctx, key(queue, "backlog"))
	pauses := pipe.HGetAll(ctx, key(queue, "pauses"))
	overrides := pipe.HGetAll(ctx, key(queue, "overrides"))
	adapt := pipe.HGetAll(ctx, key(queue, "adapt"))
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	f.backlog, f.pauses, f.adapt = backlog.Val(), pauses.Val(), adapt.Val()
	names := groups.Val()
	if subject != "" && !slices.Contains(names, subject) {
		names = append(names, subject)
	}
	if read := len(groups.Val()); read > 0 && int64(read) < all.Val() {
		f.part = float64(read) / float64(all.Val())
	}
	if err := f.limits.overridesOf(overrides.Val()); err != nil {
		return err
	}
	if err := f.readLanes(ctx, client, names); err != nil {
		return err
	}
	return f.look(ctx, client, subject, id)
}

// forecastAll says when all goes that waits, by the members of the lanes.
func forecastAll(ctx context.Context, client redis.UniversalClient, queue string) (*forecast, []*member, error) {
	f, err := openForecast(ctx, client, queue)
	if err != nil {
		return nil, nil, err
	}
	if err := f.read(ctx, client, "", ""); err != nil {
		return nil, nil, err
	}
	m, members, err := f.model("", 0, nil)
	if err != nil {
		return nil, nil, err
	}
	m.run(nil)
	return f, members, nil
}

// laneOf reads a lane's name.
func laneOf(name string) lane {
	l := lane{name: name}
	var rest string
	l.tenant, rest, _ = strings.Cut(name, ";")
	for rest != "" {
		var part string
		part, rest, _ = strings.Cut(rest, ";")
		if attr, value, ok := strings.Cut(part, "="); ok {
			l.attributes = append(l.attributes, [2]string{attr, value})
		}
	}
	l.kind = l.value("kind")
	return l
}

// bucketKey is the bucket of a limit that a lane stands under, as in lanes.lua.
func bucketKey(queue string, limit Limit, l *lane) string {
	name := append(make([]byte, 0, 96), "headgate:{"...)
	name = append(append(name, queue...), "}:b:"...)
	name = append(append(name, limit.Name...), ':')
	for i, attr := range limit.Per {
		if i > 0 {
			name = append(name, ';')
		}
		name = append(name, l.value(attr)...)
	}
	return string(name)
}

// readLanes reads the lanes' lengths, the limits of their tenants and the state
// of their buckets.
func (f *forecast) readLanes(ctx context.Context, client redis.UniversalClient, names []string) error {
	f.lanes = make([]lane, len(names))
	var tenants, fields []string
	seen, known := map[string]bool{}, make(map[string]int, len(names)*len(f.rules.Limits))
	sole := ""
	if len(f.rules.Kinds) == 1 {
		sole = throttle.Escape(f.rules.Kinds[0])
	}
	for i, name := range names {
		f.lanes[i] = laneOf(name)
		l := &f.lanes[i]
		if l.kind == "" {
			l.kind = sole
		}
		if !seen[l.tenant] {
			seen[l.tenant] = true
			tenants, fields = append(tenants, l.tenant), append(fields, "t:"+l.tenant)
		}
		l.buckets = make([]int, len(f.rules.Limits))
		for j, limit := range f.rules.Limits {
			if l.buckets[j] = -1; f.limits.queue.Limits[j].Spec.Algorithm == "cc" {
				continue
			}
			name := bucketKey(f.queue, limit, l)
			at, ok := known[name]
			if !ok {
				at = len(f.buckets)
				known[name] = at
				f.buckets = append(f.buckets, name)
			}
			l.buckets[j] = at
		}
	}
	pipe := client.Pipeline()
	clock := pipe.Time(ctx)
	var owns, texts []*redis.SliceCmd
	for chunk := range slices.Chunk(fields, mostKeys) {
		owns = append(owns, pipe.HMGet(ctx, key(f.queue, "limits"), chunk...))
	}
	for chunk := range slices.Chunk(f.buckets, mostKeys) {
		texts = append(texts, pipe.MGet(ctx, chunk...))
	}
	lengths := map[int]*redis.IntCmd{}
	for i := range f.lanes {
		l := &f.lanes[i]
		if len(l.attributes) > 0 {
			lengths[i] = pipe.ZCard(ctx, asynqKey(f.queue, "g:"+l.name))
		} else {
			l.jobs, _ = strconv.ParseInt(f.backlog[l.tenant], 10, 64)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	f.now = clock.Val()
	f.limits.now = f.now
	for i, length := range lengths {
		f.lanes[i].jobs = length.Val()
	}
	var own []any
	for _, reply := range owns {
		own = append(own, reply.Val()...)
	}
	if err := f.limits.tenantsOf(tenants, own); err != nil {
		return err
	}
	for _, reply := range texts {
		f.texts = append(f.texts, reply.Val()...)
	}
	for _, limit := range f.rules.Limits {
		f.calendars = append(f.calendars, limit.Windows(f.now, exactOpenings))
	}
	return nil
}

// look asks explain.lua: of one lane all that holds it, and of some what their
// jobs cost.
func (f *forecast) look(ctx context.Context, client redis.UniversalClient, subject, id string) error {
	windows, err := f.limits.queue.calendars(f.now)
	if err != nil {
		return err
	}
	args := []any{f.queue, windows, subject, id, 0}
	stride := max(1, len(f.lanes)/sampledLanes)
	for i := 0; i < len(f.lanes) && len(args) < 5+sampledLanes; i += stride {
		args = append(args, f.lanes[i].name)
	}
	args[4] = len(args) - 5
	var logs []int
	for i := range f.lanes {
		for j, at := range f.lanes[i].buckets {
			if f.limits.queue.Limits[j].Spec.Algorithm != "sl" || len(logs) == mostLogs || slices.Contains(logs, at) {
				continue
			}
			spec := f.limits.spec(j, f.lanes[i].tenant)
			logs = append(logs, at)
			args = append(args, fmt.Sprintf("%s %d %d", f.buckets[at], spec.Window, spec.Burst))
		}
	}
	reply, err := explainScript.Run(ctx, client, scriptKeys(f.queue), args...)
	if err != nil {
		return err
	}
	parts, ok := reply.([]any)
	if !ok || len(parts) != 6 {
		return fmt.Errorf("unexpected reply %v", reply)
	}
	if f.seen.place, err = numbers(parts[1], 0); err != nil {
		return err
	}
	read, err := numbers(parts[:1], 1)
	if err != nil {
		return err
	}
	if f.seen.limits, err = limitsSeen(parts[2]); err != nil {
		return err
	}
	// The script came a moment after the rest was read.
	for i := range f.seen.limits {
		f.seen.limits[i].next = f.seen.limits[i].next.Add(f.now.Sub(time.UnixMicro(read[0])))
	}
	if f.seen.cost, err = meanCost(parts[3]); err != nil {
		return err
	}
	if f.cost, err = meanCost(parts[4]); err != nil {
		return err
	}
	f.logs = map[int][2]float64{}
	for i, log := range parts[5].([]any) {
		n, err := numbers(log, 2)
		if err != nil {
			return err
		}
		f.logs[logs[i]] = [2]float64{float64(n[0]), float64(n[1]-read[0]) / 1e6}
	}
	return nil
}

func limitsSeen(reply any) (all []limitSeen, err error) {
	list, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("unexpected reply %v", reply)
	}
	for _, one := range list {
		fields, ok := one.([]any)
		if !ok || len(fields) != 5 {
			return nil, fmt.Errorf("unexpected reply %v", one)
		}
		n, err := numbers(fields[3:], 2)
		if err != nil {
			return nil, err
		}
		all = append(all, limitSeen{fmt.Sprint(fields[0]), fmt.Sprint(fields[1]), fmt.Sprint(fields[2]), time.UnixMicro(n[0]), n[1]})
	}
	return all, nil
}

// meanCost is the mean of jobs' costs by unit; 1 permit where there are no jobs.
func meanCost(reply any) (map[string]float64, error) {
	list, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("unexpected reply %v", reply)
	}
	if len(list) == 0 {
		return map[string]float64{"": 1}, nil
	}
	sum := map[string]float64{}
	for i := 0; i+1 < len(list); i += 2 {
		n, err := strconv.ParseFloat(fmt.Sprint(list[i]), 64)
		if err != nil {
			return nil, fmt.Errorf("unexpected cost %v", list[i])
		}
		sum[""] += n
		for part := range strings.SplitSeq(fmt.Sprint(list[i+1]), ";") {
			if unit, text, ok := strings.Cut(part, "="); ok {
				if n, err := strconv.ParseFloat(text, 64); err == nil {
					sum[unit] += n
				}
			}
		}
	}
	for unit := range sum {
		sum[unit] /= float64(len(list) / 2)
	}
	return sum, nil
}

// pausedUntil is when the pauses end that hold a lane, in seconds from now; +Inf:
// when somebody resumes.
func (f *forecast) pausedUntil(l *lane) float64 {
	until := 0.0
	for _, scope := range []string{wholeQueue, l.tenant, kindScope(l.kind)} {
		if text, ok := f.pauses[scope]; ok {
			until = max(until, f.until(pausedUntil(text)))
		}
	}
	return until
}

// until is a moment as seconds from now.
func (f *forecast) until(micros int64) float64 {
	if micros >= endless {
		return math.Inf(1)
	}
	return float64(micros-f.now.UnixMicro()) / 1e6
}

// at is the way back; the zero time for one that is not known.
func (f *forecast) at(seconds float64) time.Time {
	if math.IsInf(seconds, 1) || seconds > 100*365*24*3600 {
		return time.Time{}
	}
	return f.now.Add(time.Duration(seconds * 1e9))
}
