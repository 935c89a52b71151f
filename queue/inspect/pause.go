package inspect

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/store"
)

// Scope is the jobs that a pause holds: those of a tenant, of a kind, or if all fields
// are empty, of the whole queue. Holds can also be of a tenant's jobs of one kind, of all
// jobs for one endpoint (host:port), and of a tenant's jobs for one endpoint.
type Scope struct {
	Tenant   string
	Kind     string
	Endpoint string
}

// Pause is a pause in force. Waiting jobs stay where they are, jobs held by workers go
// back to their lanes, and calls in flight are finished.
type Pause struct {
	Scope
	Until  time.Time // zero: until it is resumed
	By     string    // "operator", "provider", which asked for fewer calls, or "move": the tenant moves to another partition
	Reason string    // of an operator: "ACTOR: REASON"

	// Tried reports whether it is a hold: calls failed, or an account cannot be used. When it
	// ends, one job goes, and its result decides whether others follow. Since is when it
	// began. Probing reports whether the call of that job is in flight; then Until is
	// when that is given up.
	Tried   bool
	Since   time.Time
	Probing bool
}

// Text returns until when and why as text: paused by ann until 14:12: too many bounces.
func (p Pause) Text(now time.Time) string {
	text, why := "", p.Reason
	until := " until somebody resumes"
	if !p.Until.IsZero() {
		until = " until " + clockText(p.Until, now)
	}
	switch {
	case p.Probing:
		text = "held back, and one job is trying it now"
	case p.Tried && !p.Until.After(now):
		text = "held back, and the next job will try it"
	case p.Tried:
		text = "held back" + until
	case p.By == byMove:
		text = "held back for a moment"
	case p.By == byProvider:
		text = "paused by the provider" + until
	default:
		who, reason, named := strings.Cut(p.Reason, ": ")
		if !named {
			who, reason = p.By, p.Reason
		}
		text, why = "paused by "+who+until, reason
	}
	if why != "" {
		text += ": " + why
	}
	return text
}

const (
	byProvider = "provider"
	byMove     = "move"
)

// String returns the scope as text: tenant acme, kind email, the whole queue.
func (s Scope) String() string {
	switch {
	case s.Endpoint != "" && s.Tenant != "":
		return "endpoint " + s.Endpoint + " of tenant " + s.Tenant
	case s.Endpoint != "":
		return "endpoint " + s.Endpoint
	case s.Kind != "" && s.Tenant != "":
		return "kind " + s.Kind + " of tenant " + s.Tenant
	case s.Tenant != "":
		return "tenant " + s.Tenant
	case s.Kind != "":
		return "kind " + s.Kind
	}
	return "the whole queue"
}

// readScope reads the scope in the hash of pauses.
func readScope(field string) (s Scope) {
	what, name, found := strings.Cut(field, ":")
	if !found {
		if field != store.WholeQueue {
			s.Tenant = store.Unescape(field)
		}
		return s
	}
	first, second, _ := strings.Cut(name, ";")
	switch what {
	case "m":
		s.Tenant = store.Unescape(name)
	case "k":
		s.Kind = store.Unescape(name)
	case "a":
		s.Kind, s.Tenant = store.Unescape(first), store.Unescape(second)
	case "h":
		s.Endpoint = store.Unescape(name)
	case "e":
		s.Tenant, s.Endpoint = store.Unescape(first), store.Unescape(second)
	}
	return s
}

// ParsePause reads "until_us by reason", or a hold. By is "" if there is no pause.
func ParsePause(field, text string) Pause {
	p := Pause{Scope: readScope(field)}
	_, rest, _ := strings.Cut(text, " ")
	if micros := store.PausedUntil(text); micros > 0 {
		p.By, p.Reason, _ = strings.Cut(rest, " ")
		if words := strings.SplitN(text, " ", 6); p.By == "tried" && len(words) == 6 {
			p.By, p.Tried, p.Probing, p.Reason = byProvider, true, words[4] != "-", words[5]
			if since, err := strconv.ParseInt(words[3], 10, 64); err == nil {
				p.Since = time.UnixMicro(since)
			}
		}
		p.By = cmp.Or(p.By, byProvider)
		if micros < store.Endless {
			p.Until = time.UnixMicro(micros)
		}
	}
	return p
}

// Pauses returns the pauses and holds of a queue: of the whole queue first, then of
// kinds, then of tenants, by name, and then of endpoints.
func Pauses(ctx context.Context, client redis.UniversalClient, queue string) ([]Pause, error) {
	all, err := ofAll(ctx, client, queue, func(name string) ([]Pause, error) { return pausesIn(ctx, client, name) })
	if err != nil {
		return nil, fmt.Errorf("list the pauses of queue %q: %w", queue, err)
	}
	return mergePauses(all...), nil
}

func pausesIn(ctx context.Context, client redis.UniversalClient, queue string) ([]Pause, error) {
	now, err := store.Time(ctx, client, store.Key(queue, "pauses"))
	if err != nil {
		return nil, err
	}
	fields, err := store.ScanHash(ctx, client, store.Key(queue, "pauses"))
	if err != nil {
		return nil, err
	}
	return pausesInForce(fields, now), nil
}

// pausesInForce returns those of a hash of pauses that are in force, in the order of [Pauses].
func pausesInForce(fields map[string]string, now time.Time) []Pause {
	var pauses []Pause
	for field, text := range fields {
		if p := ParsePause(field, text); p.Tried || store.PausedUntil(text) > now.UnixMicro() {
			pauses = append(pauses, p)
		}
	}
	sortPauses(pauses)
	return pauses
}

func sortPauses(pauses []Pause) {
	slices.SortFunc(pauses, func(a, b Pause) int {
		// Endpoints come last: others choose them, and there may be any number.
		if (a.Endpoint == "") != (b.Endpoint == "") {
			return strings.Compare(a.Endpoint, b.Endpoint)
		}
		if (a.Tenant == "") != (b.Tenant == "") {
			return strings.Compare(a.Tenant, b.Tenant)
		}
		return cmp.Or(strings.Compare(a.Kind+a.Tenant, b.Kind+b.Tenant), strings.Compare(a.Endpoint, b.Endpoint))
	})
}
