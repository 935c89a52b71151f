package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/cron"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/validation"
)

// Periodic is a job that is enqueued again and again, at the ticks of a schedule.
//
// Any worker on this Redis fires it, whatever queues it serves, and there is no
// leader among them: each tick is enqueued exactly once. Ticks are told by the
// clock of Redis. One that is set back fires nothing again: entries are silent
// until it shows a time that it has not shown before.
type Periodic struct {
	// ID names the entry: 1 to 200 bytes of UTF-8 without control characters. Required.
	ID string

	// Spec says when: "minute hour day-of-month month day-of-week" as in crontab,
	// with seconds in front if there are six fields; "@hourly", "@daily",
	// "@weekly", "@monthly", "@yearly"; or "@every 90s", whole seconds counted
	// from the Unix epoch. Required.
	Spec string

	// Zone is the IANA name of the time zone of Spec, such as "Europe/Berlin" or
	// "UTC". Required, except for @every, which has none.
	//
	// A tick in the hour that is missing in spring goes at the first moment after
	// it, once for all that fall into the gap. A tick in the hour that comes twice
	// in autumn goes the first time. Only a spec of every hour ("*/5 * * * *",
	// "@hourly") goes by what the clock shows: also through the repeated hour, and
	// with nothing made up for the missing one.
	Zone string

	// Job is what is enqueued, without At, In, Key and Deadline. Required.
	Job Job

	// Paused entries do not fire, and miss nothing meanwhile.
	Paused bool

	// MaxLate is how late a tick may go that nobody was there to fire: when no
	// worker ran for a while (more than 10 s), the last tick that was missed goes,
	// once, and the others are left out. It also bounds how long a tick is tried
	// again whose job is refused, as with a full backlog; the next tick ends that,
	// too. 0 means an hour; 10 s to 24 h, whole seconds.
	MaxLate time.Duration
}

// PeriodicState is a periodic job as it stands.
type PeriodicState struct {
	Periodic
	Next      time.Time // its next tick; zero: paused, or Err
	LastFired time.Time // the last tick whose job was enqueued; zero: none

	// Err says why an entry that somebody wrote by other means cannot be read.
	Err error
}

const (
	periodicKey      = "headgate:periodic"       // hash: id -> storedPeriodic as JSON; '' -> number of changes
	periodicFiredKey = "headgate:periodic:fired" // hash, see periodic.lua

	maxPeriodicID   = 200
	defaultMaxLate  = time.Hour
	leastMaxLate    = 10 * time.Second
	maxMaxLate      = 24 * time.Hour // periodic_fire.lua remembers for longer
	periodicAtATime = 100
)

// storedPeriodic is an entry in Redis; periodic_set.lua knows the first four fields.
type storedPeriodic struct {
	Since   int64    `json:"since"` // Unix second; only later ticks count
	Paused  bool     `json:"paused"`
	Spec    string   `json:"spec"`
	Zone    string   `json:"zone"`
	MaxLate int64    `json:"max_late_seconds"`
	Job     *nextJob `json:"job"`
}

// SetPeriodic adds an entry or replaces the one with its ID; all workers know it
// within about a second. Setting the same again changes nothing, so a program may
// declare its entries whenever it starts. Only ticks after the first Set, the
// last change of Spec or Zone, and the end of a pause count.
//
// Errors: [validation.Error] for each field that cannot be accepted, those of the job
// with "job." in front, or that of Redis.
func SetPeriodic(ctx context.Context, client redis.UniversalClient, p Periodic) error {
	stored, err := p.check(ctx, client)
	if err != nil {
		return err
	}
	schedule, body, err := stored.encode()
	if err != nil {
		return fmt.Errorf("periodic job %s: %w", check.Quote(p.ID), err)
	}
	if _, err := store.PeriodicSetScript.Run(ctx, client, []string{periodicKey}, p.ID, strconv.FormatBool(p.Paused), body, schedule); err != nil {
		return fmt.Errorf("set periodic job %s: %w", check.Quote(p.ID), err)
	}
	return nil
}

// PausePeriodic pauses an entry or, with false, lets it go on with its next
// tick. It says whether there is such an entry.
func PausePeriodic(ctx context.Context, client redis.UniversalClient, id string, paused bool) (bool, error) {
	reply, err := store.PeriodicSetScript.Run(ctx, client, []string{periodicKey}, id, strconv.FormatBool(paused), "", "")
	if err != nil {
		return false, fmt.Errorf("pause periodic job %s: %w", check.Quote(id), err)
	}
	return id != "" && reply == int64(1), nil
}

// RemovePeriodic removes an entry. Jobs that it enqueued stay. It says whether
// there was one.
func RemovePeriodic(ctx context.Context, client redis.UniversalClient, id string) (bool, error) {
	if id == "" {
		return false, nil // the field of that name is not an entry
	}
	var removed *redis.IntCmd
	_, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		removed = p.HDel(ctx, periodicKey, id)
		p.HIncrBy(ctx, periodicKey, "", 1)
		return nil
	})
	if err == nil {
		err = client.HDel(ctx, periodicFiredKey, id).Err()
	}
	if err != nil {
		return false, fmt.Errorf("remove periodic job %s: %w", check.Quote(id), err)
	}
	return removed.Val() > 0, nil
}

// ListPeriodic lists all entries by ID. Payloads are json.RawMessage.
func ListPeriodic(ctx context.Context, client redis.UniversalClient) ([]PeriodicState, error) {
	var all []PeriodicState
	now, err := client.Time(ctx).Result()
	if err == nil {
		err = scanPeriodic(ctx, client, func(id string, text []byte, last int64) {
			state := PeriodicState{Periodic: Periodic{ID: id}}
			if last > 0 {
				state.LastFired = time.Unix(last, 0)
			}
			stored, s, err := decodePeriodic(text)
			if err != nil {
				state.Err = err
			} else {
				state.Periodic = Periodic{
					ID: id, Spec: stored.Spec, Zone: stored.Zone, Job: *stored.Job.job(), Paused: stored.Paused,
					MaxLate: time.Duration(stored.MaxLate) * time.Second,
				}
				if next := s.Next(max(now.Unix(), last, stored.Since)); next > 0 && !stored.Paused {
					state.Next = time.Unix(next, 0)
				}
			}
			all = append(all, state)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("list periodic jobs: %w", err)
	}
	slices.SortFunc(all, func(a, b PeriodicState) int { return strings.Compare(a.ID, b.ID) })
	// A hash that grows while it is read shows a field twice.
	return slices.CompactFunc(all, func(a, b PeriodicState) bool { return a.ID == b.ID }), nil
}

// check makes what is stored of an entry; the error names every field that is wrong.
func (p Periodic) check(ctx context.Context, client redis.UniversalClient) (storedPeriodic, error) {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, validation.Field(field, fmt.Sprintf(format, args...)))
	}
	if reason := check.Text(p.ID, maxPeriodicID); reason != "" {
		wrong("id", "%s", reason)
	}
	if s, err := cron.Parse(p.Spec, p.Zone); err != nil {
		errs = append(errs, err)
	} else if s.Next(time.Now().Unix()) == 0 {
		wrong("spec", "%s has no tick in the next five years", check.Quote(p.Spec))
	}
	late := p.MaxLate
	if late == 0 {
		late = defaultMaxLate
	}
	if late < leastMaxLate || late > maxMaxLate || late%time.Second != 0 {
		wrong("max_late", "%v is not whole seconds, %v to %v", late, leastMaxLate, maxMaxLate)
	}
	for field, set := range map[string]bool{"at": !p.Job.At.IsZero(), "in": p.Job.In != 0} {
		if set {
			wrong("job."+field, "leave it out: the job goes at the ticks of spec")
		}
	}
	if p.Job.Key != "" {
		wrong("job.key", "leave it out: each tick has a job of its own")
	}
	if !p.Job.Deadline.IsZero() {
		wrong("job.deadline", "leave it out: one moment cannot hold for every tick")
	}
	plain := p.Job
	plain.At, plain.In, plain.Key, plain.Deadline = time.Time{}, 0, "", time.Time{}
	accepting := NewClient(client)
	queue, err := accepting.routes.queueOf(ctx, plain)
	if err == nil {
		_, err = accepting.accept(ctx, plain, queue, time.Now())
	}
	for _, err := range validation.Unjoin(err) {
		invalid, ok := errors.AsType[*validation.Error](err)
		if !ok {
			return storedPeriodic{}, err
		}
		wrong("job."+invalid.Field, "%s", invalid.Reason)
	}
	if len(errs) > 0 {
		return storedPeriodic{}, errors.Join(errs...)
	}
	job, err := encodeNext(&plain, plain.Tenant)
	if err != nil {
		return storedPeriodic{}, err
	}
	return storedPeriodic{
		Paused: p.Paused, Spec: p.Spec, Zone: p.Zone, MaxLate: int64(late.Seconds()),
		Job: job,
	}, nil
}

// encode writes an entry in the form of periodic_set.lua.
func (s storedPeriodic) encode() (schedule, body []byte, err error) {
	s.Since, s.Paused = 0, false
	text, err := json.Marshal(s)
	if err != nil {
		return nil, nil, err
	}
	body, ok := bytes.CutPrefix(text, []byte(`{"since":0,"paused":false,`))
	// No text before can hold these quotes unescaped.
	schedule, _, found := bytes.Cut(body, []byte(`"max_late_seconds":`))
	if !ok || !found {
		return nil, nil, fmt.Errorf("unexpected encoding %.60s", text)
	}
	return schedule, body, nil
}

func decodePeriodic(text []byte) (storedPeriodic, cron.Schedule, error) {
	var stored storedPeriodic
	if err := json.Unmarshal(text, &stored); err != nil {
		return stored, cron.Schedule{}, err
	}
	if stored.MaxLate <= 0 || stored.MaxLate > int64(maxMaxLate.Seconds()) {
		return stored, cron.Schedule{}, validation.Field("max_late", fmt.Sprintf("%d seconds are not 1 to %.0f", stored.MaxLate, maxMaxLate.Seconds()))
	}
	s, err := cron.Parse(stored.Spec, stored.Zone)
	return stored, s, err
}

// scanPeriodic reads all entries, a few at a time, with the last tick of each
// that was fired; 0: none.
func scanPeriodic(ctx context.Context, client redis.UniversalClient, each func(id string, text []byte, fired int64)) error {
	for cursor := uint64(0); ; {
		fields, next, err := client.HScan(ctx, periodicKey, cursor, "", periodicAtATime).Result()
		if err != nil {
			return err
		}
		var ids, texts []string
		for i := 0; i+1 < len(fields); i += 2 {
			if fields[i] != "" {
				ids, texts = append(ids, fields[i]), append(texts, fields[i+1])
			}
		}
		if len(ids) > 0 {
			fired, err := client.HMGet(ctx, periodicFiredKey, ids...).Result()
			if err != nil {
				return err
			}
			for i, id := range ids {
				var last int64
				if text, ok := fired[i].(string); ok {
					_, _ = fmt.Sscan(text, &last) // what cannot be read is as none
				}
				each(id, []byte(texts[i]), last)
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}
