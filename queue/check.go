package queue

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/encryption"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/validation"
)

// checked is a valid job with its encoded fields.
type checked struct {
	Job
	home       string // the partition of its tenant
	due        int64  // Unix seconds; 0: now
	costs      string
	attributes string
	payload    []byte
}

// check validates and encodes the fields of a job. The error has every invalid field.
func (job Job) check(home string, now time.Time) (checked, error) {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, validation.Field(field, fmt.Sprintf(format, args...)))
	}
	if !check.KindPattern.MatchString(job.Kind) {
		wrong("kind", "%s is not 1 to 64 letters, digits, '.', '_', '-' or ':'", check.Quote(job.Kind))
	}
	if _, _, ok := partition.Split(home); !ok {
		wrong("queue", "%s is not 1 to 64 letters, digits, '.', '_' or '-'", check.Quote(home))
	}
	if reason := check.Text(job.Tenant, check.MaxTenant); reason != "" {
		wrong("tenant", "%s", reason)
	}
	if reason := check.Text(job.Key, check.MaxKey); job.Key != "" && reason != "" {
		wrong("key", "%s", reason)
	}
	switch job.Priority {
	case "", High, Normal, Low:
	default:
		wrong("priority", "%s is not a priority: use high, normal or low", check.Quote(string(job.Priority)))
	}
	due := job.dueSecond(now, wrong)
	if !job.Deadline.IsZero() {
		switch {
		case !job.Deadline.After(now):
			wrong("deadline", "%s has passed", job.Deadline.UTC().Format(time.RFC3339))
		case job.Deadline.Sub(now) > check.MaxAhead:
			wrong("deadline", "%s is more than 10 years ahead", job.Deadline.UTC().Format(time.RFC3339))
		case due > 0 && job.Deadline.Unix() <= due:
			wrong("deadline", "must be after the job's earliest time (at or in)")
		}
	}
	if !slices.Contains(accounts, job.Account) {
		wrong("account", "%s is not one of shared, own", check.Quote(string(job.Account)))
	}
	if job.MaxAttempts < 0 || job.MaxAttempts > maxAttempts {
		wrong("max_attempts", "%d must be 1 to %d", job.MaxAttempts, maxAttempts)
	}
	if job.Cost < 0 {
		wrong("cost", "%d: a call costs at least 1", job.Cost)
	}
	if job.Cost > store.MaxCost {
		wrong("cost", "%d is more than %d", job.Cost, int64(store.MaxCost))
	}
	costs, reason := store.EncodeCosts(job.costs())
	if reason != "" {
		wrong("costs", "%s", reason)
	}
	switch {
	case job.KeyUntil != Forgotten && job.KeyUntil != Ended:
		wrong("key_until", "%s is not valid: use \"ended\" or leave it empty", check.Quote(string(job.KeyUntil)))
	case job.KeyUntil != Forgotten && job.KeyWindow != 0:
		wrong("key_window", "set key_until or key_window, not both")
	case job.KeyWindow != 0 && (job.KeyWindow < time.Second || job.KeyWindow > maxKeyWindow):
		wrong("key_window", "%v must be 1s to 720h", job.KeyWindow)
	case job.Key == "" && (job.KeyUntil != Forgotten || job.KeyWindow != 0):
		wrong("key", "required with key_until or key_window")
	}
	if job.Retention < 0 || job.Retention > check.MaxAhead {
		wrong("retention", "%v must be 0 to 10 years", job.Retention)
	}
	if reason := headersProblem(job.Headers); reason != "" {
		wrong("headers", "%s", reason)
	}
	attributes, reason := store.EncodeAttributes(job.Attributes)
	if reason != "" {
		wrong("attributes", "%s", reason)
	}
	payload, err := encodePayload(job.Payload)
	if err != nil {
		wrong("payload", "%v", err)
	} else if encryption.Encrypted(payload) {
		wrong("payload", "%v", encryption.ErrMarked)
	} else if len(payload) > maxPayload {
		wrong("payload", "%d bytes; the maximum is %d; store large data elsewhere and enqueue a reference", len(payload), maxPayload)
	}
	derived := store.Derived(job.Kind, payload)
	for _, name := range store.DerivedNames(job.Kind) {
		given, ok := job.Attributes[name]
		switch value := derived[name]; {
		case !ok || given == value:
		case value == "":
			wrong("attributes", "%s: it is derived from the payload, which has none; leave it out", name)
		default:
			wrong("attributes", "%s: %s differs from %s, which is derived from the payload; leave it out", name, check.Quote(given), check.Quote(value))
		}
	}
	if len(errs) > 0 {
		return checked{}, errors.Join(errs...)
	}
	return checked{job, home, due, costs, store.WithDerived(attributes, derived), payload}, nil
}

// dueSecond returns the job's time in Unix seconds, rounded up so that the job never goes
// early; 0 means now.
func (job Job) dueSecond(now time.Time, wrong func(field, format string, args ...any)) int64 {
	at, field := job.At, "at"
	switch {
	case job.In != 0 && !at.IsZero():
		wrong("in", "set at or in, not both")
		return 0
	case job.In < 0:
		wrong("in", "%v is negative", job.In)
		return 0
	case job.In > 0:
		field = "in"
		if job.In > check.MaxAhead {
			wrong("in", "%v is more than 10 years", job.In)
			return 0
		}
		at = now.Add(job.In)
	case at.IsZero():
		return 0
	}
	if at.Year() < 2000 {
		wrong(field, "the year %d is before 2000", at.Year())
		return 0
	}
	if at.Sub(now) > check.MaxAhead {
		wrong(field, "%s is more than 10 years ahead", at.UTC().Format(time.RFC3339))
		return 0
	}
	if !at.After(now) {
		return 0
	}
	return at.Add(time.Second - time.Nanosecond).Unix()
}

func encodePayload(payload any) ([]byte, error) {
	switch p := payload.(type) {
	case nil:
		return nil, nil
	case []byte:
		return p, nil
	case json.RawMessage:
		return p, nil
	}
	return json.Marshal(payload)
}

// Bounds of [Job].Headers.
const (
	MaxHeaders     = 16
	MaxHeaderBytes = 1024 // of all names and values together
)

var headerPattern = regexp.MustCompile(`^[a-z0-9-]+$`)

// headersProblem returns why headers are invalid, or "".
func headersProblem(headers map[string]string) string {
	if len(headers) > MaxHeaders {
		return fmt.Sprintf("%d; the maximum is %d", len(headers), MaxHeaders)
	}
	bytes := 0
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		value := headers[name]
		bytes += len(name) + len(value)
		if !headerPattern.MatchString(name) {
			return fmt.Sprintf("the name %s must have only a-z, 0-9 and '-'", check.Quote(name))
		}
		if strings.HasPrefix(name, asynqwire.HeaderPrefix) {
			return fmt.Sprintf("the name %s is reserved: it begins with %s", check.Quote(name), asynqwire.HeaderPrefix)
		}
		if reason := check.Text(value, MaxHeaderBytes); value != "" && reason != "" {
			return name + ": " + reason
		}
	}
	if bytes > MaxHeaderBytes {
		return fmt.Sprintf("%d bytes of names and values; the maximum is %d", bytes, MaxHeaderBytes)
	}
	return ""
}
