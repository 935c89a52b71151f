package operate

import (
	"reflect"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/inspect"
)

// TestCauses: what happened within the window of a violation explains it, and what happened before or after does not.
func TestCauses(t *testing.T) {
	t.Parallel()
	const window = time.Minute
	over := inspect.Violation{At: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), Took: 5, Allowed: 3}
	before := func(d time.Duration) time.Time { return over.At.Add(-d) }
	override := func(tenant string, at, until time.Time) AuditEntry {
		return AuditEntry{
			At: at, Actor: "ann", Action: "override", Tenant: tenant, Limit: "calls", Reason: "a sale", Until: until,
			Before: map[string]string{"calls": "3/m"}, After: map[string]string{"calls": "9/m"},
		}
	}
	run := func(at time.Time) AuditEntry { return AuditEntry{At: at, Actor: "ann", Action: string(RunNow)} }
	ended := inspect.Cause{What: inspect.CausedByEnd, At: before(time.Second), Actor: "ann", Reason: "a sale", Before: "9/m", After: "3/m"}
	changed := inspect.Cause{What: inspect.CausedByChange, At: before(time.Second), Actor: "ann", Reason: "a sale", Before: "3/m", After: "9/m"}
	ran := func(at time.Time) inspect.Cause {
		return inspect.Cause{What: inspect.CausedByRun, At: at, Actor: "ann"}
	}
	created := override("acme", before(time.Second), time.Time{})
	created.Before = nil
	other := override("acme", before(time.Second), time.Time{})
	other.Before, other.After = map[string]string{"bytes": "3/m"}, map[string]string{"bytes": "9/m"}

	firstOwn := AuditEntry{At: before(time.Second), Actor: "ann", Action: "publish", After: map[string]string{"acme: calls": "2/m"}}
	newWithOwn := firstOwn
	newWithOwn.After = map[string]string{"calls": "3/m", "acme: calls": "2/m"}

	for name, test := range map[string]struct {
		entries []AuditEntry // the newest first
		lost    time.Time
		want    []inspect.Cause
	}{
		"nothing": {},

		"lost within the window": {lost: before(time.Second), want: []inspect.Cause{{What: inspect.CausedByLoss, At: before(time.Second)}}},
		"lost when it began":     {lost: before(window)},
		"lost after it":          {lost: before(-time.Microsecond)},

		"an override ended within it": {entries: []AuditEntry{override("acme", before(time.Hour), before(time.Second))}, want: []inspect.Cause{ended}},
		"an override ended before it": {entries: []AuditEntry{override("acme", before(time.Hour), before(window))}},
		"an override ended after it":  {entries: []AuditEntry{override("acme", before(time.Hour), before(-time.Second))}},
		"an override has no end":      {entries: []AuditEntry{override("acme", before(time.Hour), time.Time{})}},
		"an override of another":      {entries: []AuditEntry{override("zoe", before(time.Hour), before(time.Second))}},

		"changed within it":           {entries: []AuditEntry{override("acme", before(time.Second), time.Time{})}, want: []inspect.Cause{changed}},
		"another limit was changed":   {entries: []AuditEntry{other}},
		"the limit is new within it":  {entries: []AuditEntry{created}},
		"new with one of its own":     {entries: []AuditEntry{newWithOwn}},
		"its first own within it":     {entries: []AuditEntry{firstOwn}, want: []inspect.Cause{{What: inspect.CausedByChange, At: before(time.Second), Actor: "ann", After: "2/m"}}},
		"run before it, and not long": {entries: []AuditEntry{run(before(window + runTakes))}, want: []inspect.Cause{ran(before(window + runTakes))}},
		"run long before it":          {entries: []AuditEntry{run(before(window + runTakes + time.Second))}},
		"run after it":                {entries: []AuditEntry{run(before(-time.Second))}},

		"the latest three, the latest first": {
			entries: []AuditEntry{run(before(2 * time.Second)), run(before(4 * time.Second)), run(before(5 * time.Second)), override("acme", before(time.Hour), before(time.Second))},
			lost:    before(3 * time.Second),
			want:    []inspect.Cause{ended, ran(before(2 * time.Second)), {What: inspect.CausedByLoss, At: before(3 * time.Second)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := inspect.ConformanceBucket{Limit: "calls", Values: map[string]string{"tenant": "acme"}, Window: window}
			if got := causes(test.entries, test.lost, &b, &over); !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v; want %+v", got, test.want)
			}
		})
	}
}

// TestCausesOfALimitWithTheNameOfASetting: the texts of what was published call such a limit "limit NAME", those of
// an override do not, and the setting is not the limit.
func TestCausesOfALimitWithTheNameOfASetting(t *testing.T) {
	t.Parallel()
	over := inspect.Violation{At: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), Took: 5, Allowed: 3}
	at := over.At.Add(-time.Second)
	publish := func(before, after map[string]string) AuditEntry {
		return AuditEntry{At: at, Actor: "ann", Action: "publish", Before: before, After: after}
	}
	override := AuditEntry{
		At: at, Actor: "ann", Action: "override", Tenant: "acme", Limit: "conformance",
		Before: map[string]string{"conformance": "3/m"}, After: map[string]string{"conformance": "9/m"},
	}
	lowered := []inspect.Cause{{What: inspect.CausedByChange, At: at, Actor: "ann", Before: "9/m", After: "3/m"}}
	raised := []inspect.Cause{{What: inspect.CausedByChange, At: at, Actor: "ann", Before: "3/m", After: "9/m"}}
	for name, test := range map[string]struct {
		limit string
		entry AuditEntry
		want  []inspect.Cause
	}{
		"the limit was published":          {"conformance", publish(map[string]string{"limit conformance": "9/m"}, map[string]string{"limit conformance": "3/m"}), lowered},
		"the limit is new":                 {"conformance", publish(nil, map[string]string{"limit conformance": "3/m"}), nil},
		"the limit was overridden":         {"conformance", override, raised},
		"the setting was published":        {"max_backlog", publish(map[string]string{"max_backlog": "9"}, map[string]string{"max_backlog": "3"}), nil},
		"the limit of the tenant":          {"weight", publish(map[string]string{"acme: limit weight": "9/m"}, map[string]string{"acme: limit weight": "3/m"}), lowered},
		"the weight of the tenant changed": {"weight", publish(map[string]string{"acme: weight": "3"}, map[string]string{"acme: weight": "1"}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := inspect.ConformanceBucket{Limit: test.limit, Values: map[string]string{"tenant": "acme"}, Window: time.Minute}
			if got := causes([]AuditEntry{test.entry}, time.Time{}, &b, &over); !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v; want %+v", got, test.want)
			}
		})
	}
}
