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
	lowering := func(at, until time.Time) AuditEntry {
		e := override("acme", at, until)
		e.Before, e.After = e.After, e.Before
		return e
	}
	second := lowering(before(time.Hour), before(time.Second)) // replaces one that raised the limit even more
	second.Before, second.After = map[string]string{"calls": "9/m"}, map[string]string{"calls": "6/m"}
	endOfSecond := inspect.Cause{What: inspect.CausedByEnd, At: before(time.Second), Actor: "ann", Reason: "a sale", Before: "6/m"}
	redated := second // the same limit until another time
	redated.Before = redated.After
	between := func(from, to string) AuditEntry {
		return AuditEntry{At: before(time.Second), Actor: "ann", Action: "publish", Before: map[string]string{"calls": from}, After: map[string]string{"calls": to}}
	}
	run := func(at time.Time) AuditEntry { return AuditEntry{At: at, Actor: "ann", Action: string(RunNow)} }
	ended := inspect.Cause{What: inspect.CausedByEnd, At: before(time.Second), Actor: "ann", Reason: "a sale", Before: "9/m", After: "3/m"}
	changed := inspect.Cause{What: inspect.CausedByChange, At: before(time.Second), Actor: "ann", Reason: "a sale", Before: "9/m", After: "3/m"}
	published := func(from, to string) []inspect.Cause {
		return []inspect.Cause{{What: inspect.CausedByChange, At: before(time.Second), Actor: "ann", Before: from, After: to}}
	}
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
		"an override was replaced":    {entries: []AuditEntry{override("acme", before(2*window), time.Time{}), override("acme", before(time.Hour), before(time.Second))}},
		"one was replaced after it":   {entries: []AuditEntry{override("acme", over.At, time.Time{}), override("acme", before(time.Hour), before(time.Second))}, want: []inspect.Cause{ended}},
		"another was replaced":        {entries: []AuditEntry{override("zoe", before(2*window), time.Time{}), override("acme", before(time.Hour), before(time.Second))}, want: []inspect.Cause{ended}},
		"an override has no end":      {entries: []AuditEntry{override("acme", before(time.Hour), time.Time{})}},
		"an override of another":      {entries: []AuditEntry{override("zoe", before(time.Hour), before(time.Second))}},

		"one between two values":     {entries: []AuditEntry{second, override("acme", before(2*time.Hour), before(-time.Hour))}, want: []inspect.Cause{endOfSecond}},
		"one that replaced none":     {entries: []AuditEntry{second, override("acme", before(2*time.Hour), before(90*time.Minute))}},
		"one that got another end":   {entries: []AuditEntry{redated, override("acme", before(2*time.Hour), before(-time.Hour))}, want: []inspect.Cause{endOfSecond}},
		"a lowering one ended":       {entries: []AuditEntry{lowering(before(time.Hour), before(time.Second))}},
		"raised and ended within it": {entries: []AuditEntry{override("acme", before(2*time.Second), before(time.Second))}, want: []inspect.Cause{ended}},

		"lowered within it":           {entries: []AuditEntry{lowering(before(time.Second), time.Time{})}, want: []inspect.Cause{changed}},
		"raised within it":            {entries: []AuditEntry{override("acme", before(time.Second), time.Time{})}},
		"its burst was lowered":       {entries: []AuditEntry{between("token_bucket 3/m, burst 20", "token_bucket 5/m, burst 9")}, want: published("token_bucket 3/m, burst 20", "token_bucket 5/m, burst 9")},
		"its burst was raised":        {entries: []AuditEntry{between("token_bucket 3/m, burst 9, per tenant", "token_bucket 3/m, burst 20, per tenant")}},
		"its period was changed":      {entries: []AuditEntry{between("fixed_window 3/m", "fixed_window 9/h")}, want: published("fixed_window 3/m", "fixed_window 9/h")},
		"its algorithm was changed":   {entries: []AuditEntry{between("fixed_window 3/m", "token_bucket 3/m, burst 3")}, want: published("fixed_window 3/m", "token_bucket 3/m, burst 3")},
		"its ramp is longer":          {entries: []AuditEntry{between("leaky_bucket 9/m, from 3/m over 5m", "leaky_bucket 9/m, from 3/m over 9m")}, want: published("leaky_bucket 9/m, from 3/m over 5m", "leaky_bucket 9/m, from 3/m over 9m")},
		"its attribute was changed":   {entries: []AuditEntry{between("fixed_window 3/m, per tenant", "fixed_window 3/m, per model")}, want: published("fixed_window 3/m, per tenant", "fixed_window 3/m, per model")},
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
			if got := (&changes{entries: test.entries, lost: test.lost}).causes(&b, &over); !reflect.DeepEqual(got, test.want) {
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
		Before: map[string]string{"conformance": "9/m"}, After: map[string]string{"conformance": "3/m"},
	}
	lowered := []inspect.Cause{{What: inspect.CausedByChange, At: at, Actor: "ann", Before: "9/m", After: "3/m"}}
	for name, test := range map[string]struct {
		limit string
		entry AuditEntry
		want  []inspect.Cause
	}{
		"the limit was published":          {"conformance", publish(map[string]string{"limit conformance": "9/m"}, map[string]string{"limit conformance": "3/m"}), lowered},
		"the limit is new":                 {"conformance", publish(nil, map[string]string{"limit conformance": "3/m"}), nil},
		"the limit was overridden":         {"conformance", override, lowered},
		"the setting was published":        {"max_backlog", publish(map[string]string{"max_backlog": "9"}, map[string]string{"max_backlog": "3"}), nil},
		"the limit of the tenant":          {"weight", publish(map[string]string{"acme: limit weight": "9/m"}, map[string]string{"acme: limit weight": "3/m"}), lowered},
		"the weight of the tenant changed": {"weight", publish(map[string]string{"acme: weight": "3"}, map[string]string{"acme: weight": "1"}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := inspect.ConformanceBucket{Limit: test.limit, Values: map[string]string{"tenant": "acme"}, Window: time.Minute}
			if got := (&changes{entries: []AuditEntry{test.entry}}).causes(&b, &over); !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v; want %+v", got, test.want)
			}
		})
	}
}

// TestRunsOfOthers: a run explains why a limit of a group was exceeded if its jobs can be those of the group.
func TestRunsOfOthers(t *testing.T) {
	t.Parallel()
	over := inspect.Violation{At: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), Took: 5, Allowed: 3}
	run := func(tenant string) AuditEntry {
		return AuditEntry{At: over.At.Add(-time.Minute), Actor: "ann", Action: string(RunNow), Tenant: tenant}
	}
	moved := func(at time.Time) AuditEntry {
		return AuditEntry{At: at, Actor: "ann", Action: "publish", Before: map[string]string{"left: in group": "large"}}
	}
	for name, test := range map[string]struct {
		values  map[string]string
		entries []AuditEntry // the newest first
		want    bool
	}{
		"of a tenant of the group":              {map[string]string{"group": "large"}, []AuditEntry{run("in")}, true},
		"of a tenant of another group":          {map[string]string{"group": "large"}, []AuditEntry{run("other")}, false},
		"of a tenant without a group":           {map[string]string{"group": "large"}, []AuditEntry{run("left")}, false},
		"of a tenant that has left the group":   {map[string]string{"group": "large"}, []AuditEntry{moved(over.At), run("left")}, true},
		"of a tenant that had left the group":   {map[string]string{"group": "large"}, []AuditEntry{run("left"), moved(over.At.Add(-time.Hour))}, false},
		"of all tenants":                        {map[string]string{"group": "large"}, []AuditEntry{run("")}, true},
		"of any tenant, for a limit of a model": {map[string]string{"model": "m"}, []AuditEntry{run("other")}, true},
		"of any tenant, for a limit of all":     {nil, []AuditEntry{run("other")}, true},
	} {
		b := inspect.ConformanceBucket{Limit: "calls", Values: test.values, Window: time.Second}
		all := &changes{entries: test.entries, groups: map[string]string{"in": "large", "other": "small"}}
		if got := all.causes(&b, &over); (len(got) == 1 && got[0].What == inspect.CausedByRun) != test.want || len(got) > 1 {
			t.Errorf("%s: %+v; want the run: %v", name, got, test.want)
		}
	}
}

// TestCausesBeforeTheAudit: nobody says that no change explains a violation of which the audit may have dropped the cause.
func TestCausesBeforeTheAudit(t *testing.T) {
	t.Parallel()
	over := inspect.Violation{At: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), Took: 5, Allowed: 3}
	b := inspect.ConformanceBucket{Limit: "calls", Window: time.Minute}
	first := over.At.Add(-b.Window - runTakes) // from which its causes can be
	entries := func(actor string, n int, oldest time.Time) (all []AuditEntry) {
		for i := range n {
			all = append(all, AuditEntry{At: oldest.Add(time.Duration(n-1-i) * time.Second), Actor: actor, Action: "pause"})
		}
		return all
	}
	run := AuditEntry{At: over.At, Actor: "cli:ann", Action: string(RunNow)}
	later := first.Add(time.Microsecond)
	for name, test := range map[string]struct {
		entries []AuditEntry
		want    []inspect.Cause
	}{
		"a share that has dropped none":       {entries: entries("cli:ann", maxShare-1, later)},
		"a share that may have dropped them":  {entries: entries("cli:ann", maxShare, later), want: []inspect.Cause{{What: inspect.CauseUnknown, At: later}}},
		"a share that has dropped older ones": {entries: entries("cli:ann", maxShare, first)},
		"two shares that have dropped none":   {entries: append(entries("cli:ann", maxShare-1, later), entries("bob", 1, first)...)},
		"a cause is known": {
			entries: append(entries("cli:ann", maxShare-1, later.Add(time.Second)), run),
			want:    []inspect.Cause{{What: inspect.CausedByRun, At: over.At, Actor: "cli:ann"}},
		},
	} {
		all := &changes{entries: test.entries, from: reaches(test.entries)}
		if got := all.causes(&b, &over); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %+v; want %+v", name, got, test.want)
		}
	}
	if many := entries("bob", MaxAudit, later); !reaches(many).Equal(many[maxShare-1].At) {
		t.Errorf("the audit reaches back to %v", reaches(many))
	}
}
