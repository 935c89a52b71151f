package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
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
	now, err := store.Time(ctx, client, store.Key(queue, "pauses"))
	switch {
	case err != nil:
		return inspect.Pause{}, fmt.Errorf("pause queue %q: %w", queue, err)
	case micros <= now.UnixMicro():
		return inspect.Pause{}, validation.Field("until", until.UTC().Format(time.RFC3339)+" has passed")
	case !until.IsZero() && until.Sub(now) > check.MaxAhead:
		return inspect.Pause{}, validation.Field("until", until.UTC().Format(time.RFC3339)+" is more than 10 years ahead; leave it out to pause until resumed")
	}
	_, after, _, err := changePause(ctx, client, scope, micros, by, AuditEntry{At: now, Action: "pause", Queue: queue, Until: until})
	return after, err
}

// ResumeJobs ends the pause of a scope, regardless of who made it. It returns false if
// there was none. Pauses of other scopes that hold the same jobs stay: resuming a tenant
// does not resume the queue.
func ResumeJobs(ctx context.Context, client redis.UniversalClient, queue string, scope inspect.Scope, by Operator) (bool, error) {
	now, err := store.Time(ctx, client, store.Key(queue, "pauses"))
	if err != nil {
		return false, fmt.Errorf("resume queue %q: %w", queue, err)
	}
	before, _, homes, err := changePause(ctx, client, scope, 0, by, AuditEntry{At: now, Action: "resume", Queue: queue})
	if err != nil {
		return false, err
	}
	for _, home := range homes {
		if err := effective.Replan(ctx, client, home, scope.Tenant); err != nil {
			return false, err
		}
	}
	return before.By != "", nil
}

// changePause changes the pause of a scope in the partitions that it concerns, and returns these.
func changePause(
	ctx context.Context, client redis.UniversalClient, scope inspect.Scope, until int64, by Operator, entry AuditEntry,
) (before, after inspect.Pause, homes []string, err error) {
	if err := by.Check(); err != nil {
		return before, after, homes, err
	}
	field, err := scopeField(scope, until == 0)
	if err != nil {
		return before, after, homes, err
	}
	if err := store.CheckQueue(ctx, client, entry.Queue); err != nil {
		return before, after, homes, err
	}
	entry.Actor, entry.Reason = by.Actor, by.Reason
	entry.Tenant, entry.Kind, entry.Endpoint = scope.Tenant, scope.Kind, scope.Endpoint
	l, err := store.ReadLayout(ctx, client, entry.Queue)
	if err != nil {
		return before, after, homes, err
	}
	limits, err := effective.ReadQueue(ctx, client, entry.Queue)
	if err != nil {
		return before, after, homes, err
	}
	windows, err := limits.Calendars(entry.At)
	if err != nil {
		return before, after, homes, fmt.Errorf("limits of queue %q: %w", entry.Queue, err)
	}
	changed := false
	var errs []error
	homes = homesOf(l, scope.Tenant)
	for _, home := range homes {
		was, is, err := changePauseIn(ctx, client, home, field, until, by, entry, windows)
		if err != nil {
			errs = append(errs, err)
			continue // a partition that does not answer does not keep others going that should stop
		}
		changed = changed || was != "" || is != ""
		before, after = later(before, inspect.ParsePause(field, was)), later(after, inspect.ParsePause(field, is))
	}
	if changed {
		by.log(entry)
	}
	switch n := len(errs); {
	case n > 0 && len(homes) > 1:
		return before, after, homes, fmt.Errorf("%s queue %q: %d of its %d partitions are as before, try again: %w", entry.Action, entry.Queue, n, len(homes), errs[0])
	case n > 0:
		return before, after, homes, fmt.Errorf("%s queue %q: %w", entry.Action, entry.Queue, errs[0])
	}
	return before, after, homes, nil
}

func changePauseIn(
	ctx context.Context, client redis.UniversalClient, home, field string, until int64, by Operator, entry AuditEntry, windows string,
) (was, is string, err error) {
	var reply any
	err = store.Patient(ctx, func() (err error) {
		reply, err = store.PauseScript.Run(ctx, client, store.ScriptKeys(home), home, field, until, by.Actor+": "+by.Reason, entry.text(), windows, share(by.Actor))
		return err
	})
	if err != nil {
		return "", "", err
	}
	read := store.Read(reply)
	was, is = read.Text(), read.Text()
	return was, is, read.End()
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
