package effective

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/sendwindow"
	"github.com/headgate/headgate/throttle"
)

// Attributes returns the names of the attributes that split lanes: those in the `per` of
// limits, without tenant and group, and always the kind and the endpoint.
func Attributes(q limits.Queue) []string {
	// A kind can be paused or have a send window, and an endpoint can be held.
	names := map[string]bool{"kind": true, limits.EndpointAttribute: true}
	for _, limit := range q.Limits {
		for _, attr := range limit.Per {
			if attr != "tenant" && attr != limits.GroupAttribute {
				names[attr] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// The stored form of limits, which the scripts read: see lanes.lua.
type (
	Queue struct {
		// The script plain_attributes depends on the order of the first fields.
		Attributes      []string `json:"attributes"`
		MaxBacklog      int64    `json:"max_backlog,omitempty"`
		MaxBacklogBytes int64    `json:"max_backlog_bytes,omitempty"`
		MaxQueue        int64    `json:"max_queue,omitempty"`
		MaxQueueBytes   int64    `json:"max_queue_bytes,omitempty"`
		MaxRetention    int64    `json:"max_retention,omitempty"` // seconds
		Limits          []Limit  `json:"limits"`
		Kinds           []string `json:"kinds"`

		Durability  limits.Durability `json:"durability,omitempty"` // "": primary
		Conformance bool              `json:"conformance,omitempty"`
		Partitions  int               `json:"partitions,omitempty"` // 0: one
		Guarantees  bool              `json:"guarantees,omitempty"` // a tenant has one
		From        *store.Before     `json:"from,omitempty"`       // nil: no tenant moves

		SendWindows map[string]string `json:"send_windows,omitempty"` // by kind
		Windows     []string          `json:"windows,omitempty"`      // all of them, including those of tenants
	}
	Limit struct {
		Name     string        `json:"name"`
		Per      []string      `json:"per"`
		Spec     limitlua.Spec `json:"spec"`
		Unit     string        `json:"unit,omitempty"`
		Adaptive bool          `json:"adaptive,omitempty"`
		Ramp     *Ramp         `json:"ramp,omitempty"`
		For      limits.Side   `json:"for,omitempty"`
		Calendar string        `json:"calendar,omitempty"` // key of set_calendars
		Queues   []string      `json:"queues,omitempty"`   // that share the limit; nil: this one alone
		Text     text          `json:"text"`
	}
	// Ramp has durations in µs.
	Ramp struct {
		From   int64   `json:"from"`
		To     int64   `json:"to"`
		Period int64   `json:"period"`
		Over   int64   `json:"over"`
		Hold   float64 `json:"hold"`
	}
	// text is what the spec was made from; it is shown to users, and calendars need it.
	text struct {
		Algorithm   throttle.Algorithm `json:"algorithm,omitempty"`
		Rate        string             `json:"rate,omitempty"`
		Burst       int64              `json:"burst,omitempty"`
		Capacity    int64              `json:"capacity,omitempty"`
		Concurrency int64              `json:"concurrency,omitempty"`
		Timezone    string             `json:"timezone,omitempty"`
	}
	Tenant struct {
		Weight float64                  `json:"w,omitempty"`
		Part   int64                    `json:"g,omitempty"` // its guarantee, of limits.GuaranteeParts
		Limits map[string]limitlua.Spec `json:"l,omitempty"`
		Window string                   `json:"window,omitempty"`
		Group  string                   `json:"group,omitempty"` // escaped
	}
)

// AheadOfNow is more than the farthest time from now for which slots are ever granted.
const AheadOfNow = 3 * store.Horizon

// Spec returns a limit in the form that the scripts take.
func Spec(l limits.Limit) limitlua.Spec {
	spec := lua(l).Spec(true, AheadOfNow)
	spec.Leased = l.Queues != nil
	return spec
}

// Windows returns the calendar windows of a limit around now; see
// [limitlua.Limit.Windows].
func Windows(l limits.Limit, now time.Time, n int) []int64 { return lua(l).Windows(now, n) }

func lua(l limits.Limit) limitlua.Limit {
	return limitlua.Limit{
		Algorithm: string(l.Algorithm), Count: l.Rate.Count, Period: l.Rate.Period, Months: l.Rate.Months, Location: l.Location,
		Burst: l.Burst, Capacity: l.Capacity, Concurrency: l.Concurrency,
	}
}

// Store returns the stored form of a limit.
func Store(l limits.Limit) Limit {
	s := Limit{Name: l.Name, Per: l.Per, Spec: Spec(l), Unit: l.Unit, Adaptive: l.Adaptive, For: l.For, Queues: l.Queues, Text: text{
		Algorithm: l.Algorithm, Burst: l.Burst, Capacity: l.Capacity, Concurrency: l.Concurrency,
	}}
	if s.Per == nil {
		s.Per = []string{} // an empty list, not null, for the script
	}
	if l.Algorithm != throttle.Concurrency {
		s.Text.Rate = l.Rate.String()
	}
	if r := l.Ramp; r != nil {
		s.Ramp = &Ramp{
			From: r.From.Count, To: l.Rate.Count, Period: r.Period().Microseconds(), Over: r.Over.Microseconds(),
			Hold: cmp.Or(r.HoldAbove, limits.DefaultHoldAbove),
		}
	}
	if l.Location != nil {
		s.Calendar = l.Name
		s.Text.Timezone = l.Location.String()
	}
	return s
}

// Decode reads the stored form.
func (s Limit) Decode() (limits.Limit, error) {
	l := limits.Limit{Per: s.Per, Unit: s.Unit, Adaptive: s.Adaptive, For: s.For, Queues: s.Queues, Name: s.Name, Algorithm: s.Text.Algorithm, Burst: s.Text.Burst, Capacity: s.Text.Capacity, Concurrency: s.Text.Concurrency}
	if s.Text.Rate != "" {
		if err := l.Rate.UnmarshalText([]byte(s.Text.Rate)); err != nil {
			return limits.Limit{}, err
		}
	}
	l.Ramp = s.Ramp.decode(l.Rate)
	if s.Text.Timezone != "" {
		loc, err := time.LoadLocation(s.Text.Timezone)
		if err != nil {
			return limits.Limit{}, fmt.Errorf("limit %q: %w", s.Name, err)
		}
		l.Location = loc
	}
	return l, nil
}

// decode reads the stored form of the ramp to a rate.
func (s *Ramp) decode(to throttle.Rate) *limits.Ramp {
	if s == nil {
		return nil
	}
	r := &limits.Ramp{From: to, Over: time.Duration(s.Over) * time.Microsecond}
	r.From.Count = s.From
	if s.Hold != limits.DefaultHoldAbove {
		r.HoldAbove = s.Hold
	}
	return r
}

// StoreQueue returns the stored form of a queue that has one partition and these tenants.
func StoreQueue(q limits.Queue, tenants map[string]Tenant) Queue {
	stored := Queue{
		Limits: []Limit{}, Attributes: Attributes(q), Kinds: q.Kinds,
		MaxBacklog: q.MaxBacklog, MaxBacklogBytes: q.MaxBacklogBytes, MaxQueue: q.MaxQueue, MaxQueueBytes: q.MaxQueueBytes,
		MaxRetention: int64(q.MaxRetention / time.Second),
		Conformance:  q.Conformance,
		SendWindows:  map[string]string{},
	}
	if q.Durability != limits.Primary { // the default
		stored.Durability = q.Durability
	}
	windows := map[string]bool{}
	for kind, window := range q.SendWindows {
		stored.SendWindows[kind] = window.String()
		windows[window.String()] = true
	}
	for _, tenant := range tenants {
		windows[tenant.Window] = true
		stored.Guarantees = stored.Guarantees || tenant.Part > 0
	}
	delete(windows, "") // always open
	stored.Windows = slices.Sorted(maps.Keys(windows))
	// An empty list, not null, for the scripts.
	if stored.Kinds == nil {
		stored.Kinds = []string{}
	}
	for _, limit := range q.Limits {
		stored.Limits = append(stored.Limits, Store(limit))
	}
	return stored
}

// StoreTenants returns the stored form of the tenants that differ from others in a queue.
func StoreTenants(l limits.Set, queue string) map[string]Tenant {
	out := map[string]Tenant{}
	for tenant, t := range l.Tenants {
		s := Tenant{Weight: cmp.Or(t.Weight, 1), Part: t.GuaranteeParts(), Window: t.SendWindow.String(), Group: rediskey.Escape(t.Group)}
		for _, limit := range l.Queues[queue].Limits {
			ofGroup, grouped := l.Groups[t.Group].Limits[queue][limit.Name]
			own, differs := t.Limits[queue][limit.Name]
			if !grouped && !differs {
				continue
			}
			if s.Limits == nil {
				s.Limits = map[string]limitlua.Spec{}
			}
			s.Limits[limit.Name] = Spec(limit.With(ofGroup).With(own))
		}
		if s.Weight != 1 || s.Part > 0 || s.Limits != nil || s.Window != "" || s.Group != "" {
			out[tenant] = s
		}
	}
	return out
}

// Published reads the published limits of a queue; without any it returns no error.
func Published(ctx context.Context, client redis.UniversalClient, queue string) (limits.Queue, error) {
	stored, err := ReadQueue(ctx, client, queue)
	if err != nil {
		return limits.Queue{}, err
	}
	q, err := stored.Decode()
	if err != nil {
		return limits.Queue{}, fmt.Errorf("read the limits of queue %q: %w", queue, err)
	}
	return q, nil
}

// ReadQueue reads what is published for a queue. Without limits only Attributes is set.
func ReadQueue(ctx context.Context, client redis.UniversalClient, queue string) (Queue, error) {
	return QueueOf(queue, client.HGet(ctx, store.Key(queue, "limits"), "*"))
}

// QueueOf decodes a reply with what is published for a queue.
func QueueOf(queue string, reply *redis.StringCmd) (Queue, error) {
	text, err := reply.Bytes()
	if errors.Is(err, redis.Nil) {
		return Queue{Attributes: Attributes(limits.Queue{})}, nil
	}
	if err != nil {
		return Queue{}, fmt.Errorf("read the limits of queue %q: %w", partition.QueueOf(queue), err)
	}
	var stored Queue
	if err := json.Unmarshal(text, &stored); err != nil {
		return Queue{}, fmt.Errorf("read the limits of queue %q: %w: %w", partition.QueueOf(queue), errUnreadable, err)
	}
	return stored, nil
}

var errUnreadable = errors.New("the limits in Redis are damaged; publish them again")

// Decode reads the stored form.
func (s Queue) Decode() (limits.Queue, error) {
	q := limits.Queue{
		Kinds: s.Kinds, MaxBacklog: s.MaxBacklog, MaxBacklogBytes: s.MaxBacklogBytes, MaxQueue: s.MaxQueue, MaxQueueBytes: s.MaxQueueBytes,
		MaxRetention: time.Duration(s.MaxRetention) * time.Second, Durability: s.Durability, Conformance: s.Conformance, Partitions: s.Partitions,
	}
	for _, stored := range s.Limits {
		limit, err := stored.Decode()
		if err != nil {
			return limits.Queue{}, err
		}
		q.Limits = append(q.Limits, limit)
	}
	for kind, text := range s.SendWindows {
		window, err := sendwindow.Parse(text)
		if err != nil {
			return limits.Queue{}, err
		}
		if q.SendWindows == nil {
			q.SendWindows = map[string]sendwindow.Window{}
		}
		q.SendWindows[kind] = window
	}
	return q, nil
}

// windowsAhead is how far ahead the scripts know the openings of a send window: more than
// a week, after which they repeat.
const windowsAhead = 9 * 24 * time.Hour

// Calendars returns the windows of a queue's calendar limits around now, and the openings
// of its send windows from now on, as JSON for the scripts; "" if there are none.
func (s Queue) Calendars(now time.Time) (string, error) {
	q, err := s.Decode()
	if err != nil {
		return "", err
	}
	windows := map[string][]int64{}
	for _, limit := range q.Limits {
		if limit.Location != nil {
			windows[limit.Name] = Windows(limit, now, 2)
		}
	}
	for _, text := range s.Windows {
		window, err := sendwindow.Parse(text)
		if err != nil {
			return "", err
		}
		windows["w:"+text] = window.Openings(now, now.Add(windowsAhead))
	}
	if len(windows) == 0 {
		return "", nil
	}
	text, err := json.Marshal(windows)
	return string(text), err
}

// Override is an override in its stored form; see lanes.lua. The scripts read only Limit
// and Until.
type Override struct {
	Change  limits.Change  `json:"change"`
	Limit   *limitlua.Spec `json:"limit,omitempty"`   // the limit with the change applied; nil: the override is not in force
	Problem string         `json:"problem,omitempty"` // why it is not in force
	Until   int64          `json:"until"`             // µs; 0: no end
	Reason  string         `json:"reason"`
	Actor   string         `json:"actor"`
}

func (o Override) Holds(now time.Time) bool { return o.Until == 0 || o.Until > now.UnixMicro() }
