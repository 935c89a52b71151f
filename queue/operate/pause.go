package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/fanout"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/validation"
)

// scopeField returns the scope of a pause as lanes.lua writes it; with resume also that
// of a hold.
func scopeField(s inspect.Scope, resume bool) (string, error) {
	tenant, kind, endpoint := rediskey.Escape(s.Tenant), rediskey.Escape(s.Kind), rediskey.Escape(s.Endpoint)
	switch {
	case s.Endpoint != "" && (!resume || s.Kind != ""):
		return "", validation.Field("endpoint", "an endpoint cannot be paused, only resumed after a hold; leave out the kind")
	case s.Tenant != "" && s.Kind != "" && !resume:
		return "", validation.Field("tenant", "pause a tenant or a kind, not both")
	case s.Endpoint != "" && s.Tenant != "":
		return store.EndpointScope(tenant, endpoint), nil
	case s.Endpoint != "":
		return store.HostScope(endpoint), nil
	case s.Tenant != "" && s.Kind != "":
		return store.OwnAccountScope(kind, tenant), nil
	case s.Tenant != "":
		if reason := check.Text(s.Tenant, check.MaxTenant); reason != "" {
			return "", validation.Field("tenant", reason)
		}
		return rediskey.Escape(s.Tenant), nil
	case s.Kind != "":
		if !check.KindPattern.MatchString(s.Kind) {
			return "", validation.Field("kind", check.Quote(s.Kind)+" is not 1 to 64 letters, digits, '.', '_', '-' or ':'")
		}
		return store.KindScope(rediskey.Escape(s.Kind)), nil
	}
	return store.WholeQueue, nil
}

// PauseJobs pauses a scope until a time, or with the zero time until [ResumeJobs]. The
// pause is in force at once for all workers. Of two pauses of a scope the one that ends
// later is in force; PauseJobs returns that one.
func PauseJobs(ctx context.Context, client redis.UniversalClient, queue string, scope inspect.Scope, until time.Time, by Operator) (inspect.Pause, error) {
	micros := store.Endless
	if !until.IsZero() {
		micros = until.UnixMicro()
	}
	homes, now, err := pausable(ctx, client, queue, scope)
	switch {
	case err != nil:
		return inspect.Pause{}, err
	case micros <= now.UnixMicro():
		return inspect.Pause{}, validation.Field("until", until.UTC().Format(time.RFC3339)+" has passed")
	case !until.IsZero() && until.Sub(now) > check.MaxAhead:
		return inspect.Pause{}, validation.Field("until", until.UTC().Format(time.RFC3339)+" is more than 10 years ahead; leave it out to pause until resumed")
	}
	_, _, after, err := changePause(ctx, client, homes, scope, micros, by, AuditEntry{At: now, Action: "pause", Queue: queue, Until: until})
	return after, err
}

// ResumeJobs ends the pause of a scope, regardless of who made it. It returns false if
// there was none. Pauses of other scopes that hold the same jobs stay: resuming a tenant
// does not resume the queue.
func ResumeJobs(ctx context.Context, client redis.UniversalClient, queue string, scope inspect.Scope, by Operator) (bool, error) {
	homes, now, err := pausable(ctx, client, queue, scope)
	if err != nil {
		return false, err
	}
	homes, before, _, err := changePause(ctx, client, homes, scope, 0, by, AuditEntry{At: now, Action: "resume", Queue: queue})
	for _, home := range homes {
		err = cmp.Or(err, effective.Replan(ctx, client, home, scope.Tenant))
	}
	return err == nil && before.By != "", err
}

// pausable returns the partitions that a pause of a scope concerns, and the time of one that answers.
func pausable(ctx context.Context, client redis.UniversalClient, queue string, scope inspect.Scope) (homes []string, now time.Time, err error) {
	if err := store.CheckQueue(ctx, client, queue); err != nil {
		return nil, now, err
	}
	l, err := store.ReadLayout(ctx, client, queue)
	if err != nil {
		return nil, now, err
	}
	homes = homesOf(l, scope.Tenant)
	if len(homes) > 1 && scope.Tenant != "" { // it moves
		home, _, err := store.HomeOf(ctx, client, l, scope.Tenant)
		if err != nil {
			return nil, now, err
		}
		homes = []string{home}
	}
	times, errs := fanout.Each(homes, func(home string) (time.Time, error) { return store.Time(ctx, client, store.Key(home, "pauses")) })
	for i, at := range times {
		if errs[i] == nil {
			return homes, at, nil
		}
	}
	return nil, now, fmt.Errorf("read the time of queue %q: %w", queue, errs[0])
}

// errLeft reports that a tenant has left a partition for another one.
var errLeft = errors.New("the tenant is on its way to another partition; try again")

// movesOn is how often a tenant may have moved on since its partition was looked up.
const movesOn = 5

// changePause changes the pause of a scope in partitions, and returns those in which it did.
func changePause(
	ctx context.Context, client redis.UniversalClient, homes []string, scope inspect.Scope, until int64, by Operator, entry AuditEntry,
) (in []string, before, after inspect.Pause, err error) {
	if err := by.Check(); err != nil {
		return nil, before, after, err
	}
	field, err := scopeField(scope, until == 0)
	if err != nil {
		return nil, before, after, err
	}
	for try := 1; ; try++ {
		in, before, after, err = changePauses(ctx, client, homes, field, until, by, entry, scope)
		if !errors.Is(err, errLeft) || try == movesOn {
			return in, before, after, err
		}
		if homes, _, err = pausable(ctx, client, entry.Queue, scope); err != nil {
			return nil, before, after, err
		}
	}
}

// changePauses changes the pause of a scope in partitions, and returns those that answered.
func changePauses(
	ctx context.Context, client redis.UniversalClient, homes []string, field string, until int64, by Operator, entry AuditEntry, scope inspect.Scope,
) (in []string, before, after inspect.Pause, err error) {
	entry.Actor, entry.Reason = by.Actor, by.Reason
	entry.Tenant, entry.Kind, entry.Endpoint = scope.Tenant, scope.Kind, scope.Endpoint
	// A partition that does not answer does not keep others going that should stop.
	pauses, errs := fanout.Each(homes, func(home string) ([2]string, error) { return changePauseIn(ctx, client, home, field, until, by, entry) })
	away, changed := 0, false
	for i, pause := range pauses {
		if errs[i] != nil {
			away++
			err = cmp.Or(err, errs[i])
			continue
		}
		in = append(in, homes[i])
		changed = changed || pause[0] != "" || pause[1] != ""
		before, after = later(before, inspect.ParsePause(field, pause[0])), later(after, inspect.ParsePause(field, pause[1]))
	}
	if changed {
		by.log(entry)
	} else {
		by.unsure(err, entry)
	}
	switch {
	case away > 0 && len(homes) > 1:
		return in, before, after, &PartialError{away, len(homes), err, fmt.Sprintf("%s queue %q: %d of its %d partitions may be as before, try again", entry.Action, entry.Queue, away, len(homes))}
	case away > 0:
		return in, before, after, fmt.Errorf("%s queue %q: %w", entry.Action, entry.Queue, err)
	}
	return in, before, after, nil
}

// PartialError reports that some partitions of a queue failed to do, or to count, what the others did.
type PartialError struct {
	Away, Partitions int // how many failed, and how many there are
	Err              error

	text string
}

func (e *PartialError) Error() string { return fmt.Sprintf("%s: %v", e.text, e.Err) }
func (e *PartialError) Unwrap() error { return e.Err }

// changePauseIn returns the pause of a partition before and after.
func changePauseIn(
	ctx context.Context, client redis.UniversalClient, home, field string, until int64, by Operator, entry AuditEntry,
) (pauses [2]string, err error) {
	var reply any
	windows := &effective.Calendars{Queue: home, Redis: client}
	err = windows.Run(ctx, func(calendars string) error {
		return store.Patient(ctx, func() (err error) {
			reply, err = store.PauseScript.Run(ctx, client, store.ScriptKeys(home), home, field, until, by.Actor+": "+by.Reason, entry.text(), calendars, share(by.Actor))
			return err
		})
	})
	if err != nil {
		return pauses, err
	}
	read := store.Read(reply)
	pauses = [2]string{read.Text(), read.Text()}
	if read.Flag() {
		return pauses, errLeft
	}
	return pauses, read.End()
}

// later returns which of two pauses of a scope ends later. One without By is none.
func later(a, b inspect.Pause) inspect.Pause {
	switch {
	case b.By == "", a.By != "" && a.Until.IsZero():
		return a
	case a.By == "", b.Until.IsZero(), b.Until.After(a.Until):
		return b
	}
	return a
}
