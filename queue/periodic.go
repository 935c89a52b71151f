package queue

import (
	"bytes"
	"cmp"
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
	"github.com/headgate/headgate/queue/encryption"
	"github.com/headgate/headgate/queue/internal/cron"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/validation"
)

// Periodic is a job that is enqueued at every tick of a schedule.
//
// Every worker on the same Redis fires periodic jobs, whatever queues it serves. There is no
// leader, and each tick is enqueued exactly once. Ticks go by Redis's clock. If that clock is
// set back, no tick fires twice: periodic jobs pause until the clock has caught up.
type Periodic struct {
	// ID identifies the periodic job: 1 to 200 bytes of UTF-8 without control characters.
	// Required.
	ID string

	// Spec is the schedule: "minute hour day-of-month month day-of-week" as in crontab,
	// or six fields with seconds first; "@hourly", "@daily", "@weekly", "@monthly",
	// "@yearly"; or "@every 90s" in whole seconds, counted from the Unix epoch. Required.
	Spec string

	// Zone is the IANA name of the time zone of Spec, such as "Europe/Berlin" or "UTC".
	// Required, except with @every, which has no time zone.
	//
	// When clocks go forward, all ticks in the skipped hour are replaced by one tick
	// right after it. When clocks go back, a tick in the repeated hour fires the first
	// time only. Specs for every hour ("*/5 * * * *", "@hourly") follow the clock
	// instead: they fire in both repeated hours, and skip the missing one.
	Zone string

	// Job is the job to enqueue, without At, In, Key and Deadline. Required.
	Job Job

	// Paused stops the ticks. Ticks during a pause are not made up for. A periodic job that is paused
	// stays paused when it is set again, until [Client.PausePeriodic] resumes it.
	Paused bool

	// Overlap says what a tick does while the job of an earlier tick has not ended. The
	// default is [OverlapSkip].
	Overlap Overlap

	// MaxLate is the maximum delay of a tick. If no worker ran for more than 10 s, the
	// latest missed tick fires once if it is not later than MaxLate, and the others are
	// dropped. A tick whose job is rejected, as with a full backlog, is tried again for
	// up to MaxLate, until the next tick, or until the kind, queue or tenant of Job is changed. 10 s to 24 h in whole seconds; 0 means an
	// hour.
	MaxLate time.Duration
}

// PeriodicState is a periodic job with its state.
type PeriodicState struct {
	Periodic
	Queue       string    // where its jobs go; "": no tick can be enqueued
	Next        time.Time // the next tick; zero: paused, none, or Err is set
	LastFired   time.Time // the latest tick whose job was enqueued; zero: none
	Skipped     int64     // ticks that Overlap skipped in the queue of the job
	LastSkipped time.Time // the latest of them; zero: none

	// Err reports that the entry in Redis cannot be read. Only the ID is set then, and
	// LastFired.
	Err error
}

const (
	periodicKey      = store.PeriodicKey         // hash: id -> storedPeriodic as JSON; '' -> number of changes
	periodicFiredKey = "headgate:periodic:fired" // hash, see periodic.lua

	maxPeriodicID   = 200
	defaultMaxLate  = time.Hour
	leastMaxLate    = 10 * time.Second
	maxMaxLate      = 24 * time.Hour // periodic_fire.lua remembers ticks for longer
	periodicAtATime = 100
)

// storedPeriodic is a periodic job in Redis. periodic_set.lua relies on the order of the
// first four fields.
type storedPeriodic struct {
	Since   int64    `json:"since"` // Unix seconds; only later ticks fire
	Paused  bool     `json:"paused"`
	Spec    string   `json:"spec"`
	Zone    string   `json:"zone"`
	MaxLate int64    `json:"max_late_seconds"`
	Overlap Overlap  `json:"overlap"`
	Job     *nextJob `json:"job"`

	// Encrypted is Job as JSON. Job then has only what workers need before they decrypt it.
	Encrypted []byte `json:"encrypted,omitzero"`
}

// SetPeriodic adds a periodic job, or replaces the one with the same ID. Workers see the
// change within about a second. Setting the same job again changes nothing, so a program
// can set its periodic jobs whenever it starts. The first tick is the first one after the
// job was added, its Spec or Zone last changed, or its pause ended.
//
// The error is a [validation.Error] for each invalid field, with "job." before the fields
// of the job, or an error of Redis.
func (c *Client) SetPeriodic(ctx context.Context, p Periodic) error {
	stored, err := c.checkPeriodic(ctx, p)
	if err == nil {
		stored, err = c.encryptPeriodic(ctx, p.ID, stored)
	}
	if err != nil {
		return err
	}
	schedule, body, err := stored.encode()
	if err != nil {
		return fmt.Errorf("periodic job %s: %w", check.Quote(p.ID), err)
	}
	if _, err := store.PeriodicSetScript.Run(ctx, c.redis, []string{periodicKey}, p.ID, strconv.FormatBool(p.Paused), body, schedule); err != nil {
		return fmt.Errorf("set periodic job %s: %w", check.Quote(p.ID), err)
	}
	return nil
}

// PausePeriodic pauses a periodic job, or, if paused is false, resumes it with its next
// tick. It reports whether the periodic job exists.
func (c *Client) PausePeriodic(ctx context.Context, id string, paused bool) (bool, error) {
	reply, err := store.PeriodicSetScript.Run(ctx, c.redis, []string{periodicKey}, id, strconv.FormatBool(paused), "", "")
	if err != nil {
		return false, fmt.Errorf("pause periodic job %s: %w", check.Quote(id), err)
	}
	return id != "" && reply == int64(1), nil
}

// RemovePeriodic removes a periodic job. Jobs that it has enqueued stay. It reports whether
// the periodic job existed.
func (c *Client) RemovePeriodic(ctx context.Context, id string) (bool, error) {
	if id == "" {
		return false, nil // the field "" has the number of changes
	}
	text, err := c.redis.HGet(ctx, periodicKey, id).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, fmt.Errorf("remove periodic job %s: %w", check.Quote(id), err)
	}
	var removed *redis.IntCmd
	err = store.Transaction(ctx, c.redis, func(p redis.Pipeliner) error {
		removed = p.HDel(ctx, periodicKey, id)
		p.HIncrBy(ctx, periodicKey, "", 1)
		return nil
	})
	if err == nil {
		err = c.redis.HDel(ctx, periodicFiredKey, id).Err()
	}
	if stored, _, unreadable := decodePeriodic([]byte(text)); err == nil && unreadable == nil {
		for try := range 2 { // its tenant may move
			home, without := c.routes.homeOf(ctx, *stored.Job.job(), time.Now(), try)
			switch {
			case without == nil:
				err = cmp.Or(err, c.redis.Del(ctx, tickKey(home, id)).Err())
			case !validation.Is(without): // else no queue takes its jobs any more
				err = cmp.Or(err, without)
			}
		}
	}
	if err != nil {
		return false, fmt.Errorf("remove periodic job %s: %w", check.Quote(id), err)
	}
	return removed.Val() > 0, nil
}

// ListPeriodic returns all periodic jobs, sorted by ID. Payloads are json.RawMessage, or
// []byte if they are not UTF-8.
func (c *Client) ListPeriodic(ctx context.Context) ([]PeriodicState, error) {
	var all []PeriodicState
	now, err := store.Time(ctx, c.redis, periodicKey)
	if err == nil {
		err = scanPeriodic(ctx, c.redis, func(id string, text []byte, last int64) {
			state := PeriodicState{Periodic: Periodic{ID: id}}
			if last > 0 {
				state.LastFired = time.Unix(last, 0)
			}
			stored, s, err := decodePeriodic(text)
			if err == nil {
				err = stored.decrypt(c.keys, id)
			}
			if err != nil {
				state.Err = err
			} else {
				state.Periodic = Periodic{
					ID: id, Spec: stored.Spec, Zone: stored.Zone, Job: *stored.Job.job(), Paused: stored.Paused,
					MaxLate: time.Duration(stored.MaxLate) * time.Second, Overlap: stored.Overlap,
				}
				if next := s.Next(max(now.Unix(), last, stored.Since)); next > 0 && !stored.Paused {
					state.Next = time.Unix(next, 0)
				}
			}
			all = append(all, state)
		})
	}
	if err == nil {
		err = readTicks(ctx, c.redis, all)
	}
	if err != nil {
		return nil, fmt.Errorf("list periodic jobs: %w", err)
	}
	slices.SortFunc(all, func(a, b PeriodicState) int { return strings.Compare(a.ID, b.ID) })
	// HSCAN may return a field twice while the hash grows.
	return slices.CompactFunc(all, func(a, b PeriodicState) bool { return a.ID == b.ID }), nil
}

// checkPeriodic validates a periodic job and returns what is stored of it. The error has every
// invalid field.
func (c *Client) checkPeriodic(ctx context.Context, p Periodic) (storedPeriodic, error) {
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
	late := cmp.Or(p.MaxLate, defaultMaxLate)
	if late < leastMaxLate || late > maxMaxLate || late%time.Second != 0 {
		wrong("max_late", "%v is not whole seconds, %v to %v", late, leastMaxLate, maxMaxLate)
	}
	overlap := cmp.Or(p.Overlap, OverlapSkip)
	if !slices.Contains(overlaps, overlap) {
		wrong("overlap", "%s is not skip, queue or replace", check.Quote(string(overlap)))
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
		wrong("job.deadline", "leave it out: one time cannot fit every tick")
	}
	plain := p.Job
	plain.At, plain.In, plain.Key, plain.Deadline = time.Time{}, 0, "", time.Time{}
	home, err := c.routes.homeOf(ctx, plain, time.Now(), 0)
	if err == nil {
		_, err = c.accept(ctx, plain, home, time.Now())
	}
	for _, err := range validation.Under("job", err) {
		if !validation.Is(err) {
			return storedPeriodic{}, err
		}
		errs = append(errs, err)
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
		Overlap: overlap, Job: job,
	}, nil
}

// encryptPeriodic encrypts the job of a periodic job, unless the client has no keys. The same job keeps
// its text, so that setting it again changes nothing, unless the key has changed.
func (c *Client) encryptPeriodic(ctx context.Context, id string, p storedPeriodic) (storedPeriodic, error) {
	if c.keys == nil {
		return p, nil
	}
	text, err := json.Marshal(p.Job)
	if err != nil {
		return p, err
	}
	was, err := c.redis.HGet(ctx, periodicKey, id).Bytes()
	if err != nil && !errors.Is(err, redis.Nil) {
		return p, fmt.Errorf("set periodic job %s: %w", check.Quote(id), err)
	}
	in := encryption.PlaceOf("", id, encryption.Periodic)
	before, _, err := decodePeriodic(was)
	if err == nil && c.keys.Current(before.Encrypted) {
		plain, err := c.keys.Decrypt(before.Encrypted, in)
		if err == nil && bytes.Equal(plain, text) {
			p.Encrypted = before.Encrypted
		}
	}
	if p.Encrypted == nil {
		p.Encrypted = c.keys.Encrypt(text, in)
	}
	p.Job = &nextJob{jobFields: jobFields{Kind: p.Job.Kind, Queue: p.Job.Queue, Tenant: p.Job.Tenant}}
	return p, nil
}

// decrypt sets Job to what Encrypted has.
func (s *storedPeriodic) decrypt(keys *encryption.Keys, id string) error {
	if s.Encrypted == nil {
		return nil
	}
	text, err := keys.Decrypt(s.Encrypted, encryption.PlaceOf("", id, encryption.Periodic))
	if err != nil {
		return err
	}
	s.Job = nil
	if err := json.Unmarshal(text, &s.Job); err != nil {
		return err
	}
	if s.Job == nil {
		return validation.Field("job", "it is missing")
	}
	return nil
}

// encode returns the arguments of periodic_set.lua: the entry without since and paused, and
// the beginning of it that has the schedule.
func (s storedPeriodic) encode() (schedule, body []byte, err error) {
	s.Since, s.Paused = 0, false
	text, err := json.Marshal(s)
	if err != nil {
		return nil, nil, err
	}
	body, ok := bytes.CutPrefix(text, []byte(`{"since":0,"paused":false,`))
	// The fields before escape quotes, so this is the first match.
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
	if stored.Overlap = cmp.Or(stored.Overlap, OverlapSkip); !slices.Contains(overlaps, stored.Overlap) {
		return stored, cron.Schedule{}, validation.Field("overlap", check.Quote(string(stored.Overlap))+" is not skip, queue or replace")
	}
	if stored.Job == nil {
		return stored, cron.Schedule{}, validation.Field("job", "it is missing")
	}
	s, err := cron.Parse(stored.Spec, stored.Zone)
	return stored, s, err
}

// scanPeriodic calls each for every periodic job, with the Unix second of its latest fired
// tick; 0: none.
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
					_, _ = fmt.Sscan(text, &last) // an unreadable value counts as none
				}
				each(id, []byte(texts[i]), last)
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}
