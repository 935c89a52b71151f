package limitsfile

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/sendwindow"
	"github.com/headgate/headgate/throttle"
)

// generated draws limits of every kind, with names that YAML could read as something else.
func generated(t *rapid.T) limits.Set {
	set := limits.Set{Queues: map[string]limits.Queue{}, Tenants: map[string]limits.Tenant{}}
	window := func(label string) sendwindow.Window {
		w, err := sendwindow.Parse(rapid.SampledFrom([]string{"09:00-18:00 UTC", "Mon-Fri 09:00-18:00, Sat 10:00-14:00 Europe/Berlin"}).Draw(t, label))
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	maybe := func(label string) bool { return rapid.Bool().Draw(t, label) }
	count := func(label string) int64 { return rapid.Int64Range(1, 1000).Draw(t, label) }
	rate := func(label string) throttle.Rate {
		return throttle.Rate{Count: count(label), Period: rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 90 * time.Second, time.Hour, 24 * time.Hour}).Draw(t, label+" period")}
	}
	pinned := false // tenants can be
	algorithms := []throttle.Algorithm{throttle.TokenBucket, throttle.LeakyBucket, throttle.FixedWindow, throttle.SlidingWindowLog, throttle.SlidingWindowCounter, throttle.Concurrency}
	for q := range rapid.IntRange(1, 3).Draw(t, "queues") {
		name := []string{"email", "true", "1e3"}[q]
		queue := limits.Queue{Kinds: []string{name}}
		for i := range rapid.IntRange(0, 4).Draw(t, "limits") {
			l := limits.Limit{Name: fmt.Sprintf("l%d", i), Algorithm: rapid.SampledFrom(algorithms).Draw(t, "algorithm")}
			if maybe("per tenant") {
				l.Per = []string{"tenant"}
			} else if maybe("per attribute") {
				l.Per = []string{"tenant", "null"}
			}
			switch l.Algorithm {
			case throttle.Concurrency:
				l.Concurrency = count("concurrency")
			case throttle.TokenBucket:
				l.Rate, l.Burst = rate("rate"), count("burst")
			case throttle.LeakyBucket:
				l.Rate, l.Capacity = rate("rate"), rapid.Int64Range(0, 50).Draw(t, "capacity")
			case throttle.FixedWindow:
				l.Rate = rate("rate")
				if maybe("calendar") {
					l.Location, l.Rate.Period = berlin, 24*time.Hour
				}
			default:
				l.Rate = rate("rate")
			}
			if l.Algorithm != throttle.Concurrency {
				if maybe("ramp") {
					l.Ramp = &limits.Ramp{From: l.Rate, Over: time.Duration(count("periods")) * l.Rate.Period, HoldAbove: rapid.SampledFrom([]float64{0, 0.015, 1}).Draw(t, "hold above")}
					l.Rate.Count++
				} else {
					l.Adaptive = len(l.Per) < 2 && maybe("adaptive")
				}
				if maybe("unit") {
					l.Unit = "tokens"
				}
			}
			queue.Limits = append(queue.Limits, l)
		}
		if maybe("backlog") {
			queue.MaxBacklog, queue.MaxQueue = count("max_backlog"), count("max_queue")
			queue.MaxBacklogBytes, queue.MaxQueueBytes = count("max_backlog_bytes"), count("max_queue_bytes")
			queue.MaxRetention = 24*time.Hour + time.Duration(rapid.IntRange(0, 1000).Draw(t, "max_retention"))*time.Second
		}
		if maybe("partitions") { // which share no limit
			queue.Partitions, queue.MaxQueue, queue.MaxQueueBytes = rapid.IntRange(2, 5).Draw(t, "number of partitions"), 0, 0
			queue.Limits = slices.DeleteFunc(queue.Limits, func(l limits.Limit) bool { return !slices.Contains(l.Per, "tenant") })
			pinned = true
		}
		queue.Conformance = maybe("conformance")
		if maybe("durable") {
			queue.Durability = limits.Replicated
		}
		if maybe("window") {
			queue.SendWindows = map[string]sendwindow.Window{"*": window("of all"), name: window("of the kind")}
		}
		set.Queues[name] = queue
	}
	for _, tenant := range []string{"acme", "~", "a: b", "\u00e9 #1", "null", "0x1f", "- x", "\"q\""}[:rapid.IntRange(0, 8).Draw(t, "tenants")] {
		own := limits.Tenant{Weight: rapid.SampledFrom([]float64{0.5, 2, 1000}).Draw(t, "weight"), Limits: map[string]map[string]limits.Change{}}
		if pinned && maybe("pinned") {
			own.Partition = rapid.IntRange(1, 2).Draw(t, "partition")
		}
		if maybe("own window") {
			own.SendWindow = window("of the tenant")
		}
		for name, queue := range set.Queues {
			for _, l := range queue.Limits {
				if !slices.Contains(l.Per, "tenant") || !maybe("differs") {
					continue
				}
				var c limits.Change
				switch {
				case l.Algorithm == throttle.Concurrency:
					c.Concurrency = new(l.Concurrency + 1)
				case l.Location != nil:
					c.Rate = &throttle.Rate{Count: l.Rate.Count + 1, Period: l.Rate.Period}
				default:
					c.Rate = &throttle.Rate{Count: l.Rate.Count + 1, Period: l.Rate.Period}
					if l.Algorithm == throttle.TokenBucket {
						c.Burst = new(l.Burst + 1)
					}
				}
				if own.Limits[name] == nil {
					own.Limits[name] = map[string]limits.Change{}
				}
				own.Limits[name][l.Name] = c
			}
		}
		set.Tenants[tenant] = own
	}
	return set
}

// TestFormat: what is written is read again as the same limits.
func TestFormat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := generated(t)
		if set.Validate() != nil {
			t.Skip("a combination that is refused")
		}
		text, err := Format(set)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		same(t, again, set, text)
	})
}

// TestFormatWithoutCapacity: a tenant or group whose queue has no bound of its own has none either when it is read again.
func TestFormatWithoutCapacity(t *testing.T) {
	leaky := func(per string) limits.Limit {
		return limits.Limit{Name: per, Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(5), Capacity: 20, Per: []string{per}}
	}
	unbounded := func(limit string) map[string]map[string]limits.Change {
		return map[string]map[string]limits.Change{"q": {limit: {Capacity: new(int64(0))}}}
	}
	set := limits.Set{
		Queues:  map[string]limits.Queue{"q": {Limits: []limits.Limit{leaky("tenant"), leaky("group")}}},
		Groups:  map[string]limits.Group{"resold": {Limits: unbounded("group")}},
		Tenants: map[string]limits.Tenant{"acme": {Limits: unbounded("tenant")}},
	}
	if err := set.Validate(); err != nil {
		t.Fatal(err)
	}
	text, err := Format(set)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for name, c := range map[string]limits.Change{"tenant": again.Tenants["acme"].Limits["q"]["tenant"], "group": again.Groups["resold"].Limits["q"]["group"]} {
		if c.Capacity == nil || *c.Capacity != 0 {
			t.Errorf("%s: %+v\n%s", name, c, text)
		}
	}
	// A burst of 0 would be read as none, or as 1.
	set.Queues["q"].Limits[0] = limits.Limit{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(5), Burst: 20, Per: []string{"tenant"}}
	set.Tenants["acme"].Limits["q"]["tenant"] = limits.Change{Burst: new(int64(0))}
	if err := set.Validate(); err == nil || !strings.Contains(err.Error(), "tenants.acme.limits.q.tenant.burst: 0 must be at least 1") {
		t.Errorf("%v", err)
	}
}

type failer interface {
	Helper()
	Context() context.Context
	Fatalf(string, ...any)
}

// same compares limits by their text, which has all of them, and partitions also without it.
func same(t failer, got, want limits.Set, text []byte) {
	a, errA := Format(got)
	b, errB := Format(want)
	if errA != nil || errB != nil || string(a) != string(b) || !reflect.DeepEqual(keysOf(got), keysOf(want)) {
		t.Fatalf("%v %v\ngot:\n%s\nwant:\n%s\nfrom:\n%s", errA, errB, a, b, text)
	}
}

func keysOf(set limits.Set) (names []string) {
	for tenant, t := range set.Tenants {
		names = append(names, fmt.Sprintf("%s in partition %d", tenant, t.Partition))
	}
	for queue, q := range set.Queues {
		names = append(names, fmt.Sprintf("%s of %d partitions", queue, max(q.Partitions, 1)))
		for _, l := range q.Limits {
			names = append(names, fmt.Sprintf("%s %+v", queue, limitOf(l)))
		}
	}
	slices.Sort(names)
	return names
}

// inForce fails unless these limits, of so many queues, are in force.
func inForce(t failer, client redis.UniversalClient, set limits.Set, queues int) {
	t.Helper()
	all, err := operate.Compare(t.Context(), client, set)
	if err != nil || len(all) != queues {
		t.Fatalf("%v, %v", all, err)
	}
	for _, one := range all {
		if !one.Equal() {
			t.Fatalf("%+v", one)
		}
	}
}

// TestPublishedComesBack: what is published is read back as the file has it, and compares as
// equal to it; the sample file too.
func TestPublishedComesBack(t *testing.T) {
	client := redistest.Start(t).Client()
	round := func(t failer, set limits.Set) {
		ctx, names := t.Context(), []string{}
		if err := client.FlushAll(ctx).Err(); err != nil { // queues keep their partitions
			t.Fatalf("%v", err)
		}
		for name := range set.Queues {
			names = append(names, name)
		}
		if err := operate.Publish(ctx, client, set); err != nil {
			t.Fatalf("%v", err)
		}
		back, err := operate.Published(ctx, client, names...)
		if err != nil {
			t.Fatalf("%v", err)
		}
		text, err := Format(back)
		if err != nil {
			t.Fatalf("%v", err)
		}
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		for _, compared := range []limits.Set{set, again} {
			inForce(t, client, compared, len(set.Queues))
		}
	}
	text, err := os.ReadFile("../../limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sample, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	round(t, sample)
	if queues, err := inspect.Queues(t.Context(), client); err != nil || len(queues) != len(sample.Queues) {
		t.Errorf("%v, %v", queues, err)
	}
	rapid.Check(t, func(t *rapid.T) {
		set := generated(t)
		if set.Validate() != nil {
			t.Skip("a combination that is refused")
		}
		round(t, set)
	})
}

// TestPublishedByDifferentFiles: limits that no single file can express are not returned as one
// set, but each queue by itself is.
func TestPublishedByDifferentFiles(t *testing.T) {
	const head = "queues: {%s: {limits: [{name: l, per: [tenant], algorithm: token_bucket, rate: 1/s, burst: 1}]}}\n"
	for name, test := range map[string]struct {
		a, b string // tenants of two files, each with a queue of its own
		one  bool   // whether one file can have both
	}{
		"no tenants":        {"", "", true},
		"a limit":           {"tenants: {acme: {limits: {a: {l: {rate: 2/s}}}}}", "", true},
		"the same weight":   {"tenants: {acme: {weight: 3}}", "tenants: {acme: {weight: 3}}", true},
		"different weights": {"tenants: {acme: {weight: 3}}", "tenants: {acme: {weight: 2}}", false},
		"a weight in one":   {"tenants: {acme: {weight: 3}}", "", false},
		"a window in one":   {"", `tenants: {acme: {send_window: "09:00-18:00 UTC"}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			client := redistest.Start(t).Client()
			for queue, tenants := range map[string]string{"a": test.a, "b": test.b} {
				set, err := Parse([]byte(fmt.Sprintf(head, queue) + tenants))
				if err != nil {
					t.Fatal(err)
				}
				if err := operate.Publish(t.Context(), client, set); err != nil {
					t.Fatal(err)
				}
			}
			for _, queues := range [][]string{{"a"}, {"b"}, {"a", "b"}} {
				set, err := operate.Published(t.Context(), client, queues...)
				if len(queues) == 2 && !test.one {
					if err == nil || !strings.Contains(err.Error(), `tenant "acme" has another weight, guarantee, group or send window in queue "b" than in queue "a": export one queue at a time`) {
						t.Errorf("%v: %v", queues, err)
					}
					continue
				}
				if err != nil {
					t.Fatalf("%v: %v", queues, err)
				}
				inForce(t, client, set, len(queues))
			}
		})
	}
}

// TestCompareLimitsNamedLikeSettings: a limit with the name of a setting of its queue does not
// hide a change of the setting.
func TestCompareLimitsNamedLikeSettings(t *testing.T) {
	const text = `queues: {q: {kinds: [a], max_backlog: 5, max_queue: 5, max_backlog_bytes: 1KiB, max_queue_bytes: 5, max_retention: 24h, limits: [
  {name: kinds, algorithm: leaky_bucket, rate: 1/s},
  {name: max_backlog, algorithm: leaky_bucket, rate: 1/s},
  {name: max_retention, algorithm: leaky_bucket, rate: 1/s},
  {name: max_backlog_bytes, algorithm: leaky_bucket, rate: 1/s},
  {name: max_queue_bytes, algorithm: leaky_bucket, rate: 1/s},
  {name: max_queue, algorithm: leaky_bucket, rate: 1/s}]}}`
	client := redistest.Start(t).Client()
	parsed := func(text string) limits.Set {
		t.Helper()
		set, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	if err := operate.Publish(t.Context(), client, parsed(text)); err != nil {
		t.Fatal(err)
	}
	changed := strings.NewReplacer("kinds: [a]", "kinds: [b]", "max_backlog: 5", "max_backlog: 9", "max_queue: 5", "max_queue: 9", "1KiB", "2KiB", "max_queue_bytes: 5", "max_queue_bytes: 9", "24h", "25h").Replace(text)
	all, err := operate.Compare(t.Context(), client, parsed(changed))
	if err != nil || len(all) != 1 || !reflect.DeepEqual(all[0].After, map[string]string{"kinds": "b", "max_backlog": "9", "max_queue": "9", "max_backlog_bytes": "2048", "max_queue_bytes": "9", "max_retention": "25h0m0s"}) {
		t.Errorf("%+v, %v; want all six settings", all, err)
	}
}
