package limitsfile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/operate"
)

func TestMistakesOfPartitions(t *testing.T) {
	_, err := Parse([]byte(`queues:
  a: {partitions: many}
  b: {partitions: 0}
  c: {partitions: 2.5}
  d: {partitions: 99999999999999999999}
  e: {partitions: 65}
  f: {partition: 4}
  g: {partitions: }
  h:
    partitions: 3
    max_queue_bytes: 1MiB
    limits:
      - {name: account, algorithm: leaky_bucket, rate: 300/s}
      - {name: region, per: [region], algorithm: leaky_bucket, rate: 300/s}
      - {name: both, per: [region, tenant], algorithm: leaky_bucket, rate: 300/s}
      - {name: calls, concurrency: 5}
      - {name: hour, algorithm: token_bucket, rate: 1000/h}
      - {name: spend, algorithm: fixed_window, rate: 50000/day, unit: cents, timezone: Europe/Berlin}
      - {name: month, algorithm: fixed_window, rate: 100000/month, timezone: UTC}
      - {name: tokens, algorithm: token_bucket, rate: 100000/min, burst: 50000, unit: tokens}
      - {name: words, algorithm: token_bucket, rate: 100000/min, burst: 416, unit: words}
      - {name: pages, algorithm: leaky_bucket, rate: 100/s, unit: pages}
  i:
    partitions: 1
    max_queue: 7
    limits: [{name: account, algorithm: leaky_bucket, rate: 300/s}]
plans:
  gold: {partition: 2}
tenants:
  acme: {partition: 4}
  globex: {partition: -1}
  initech: {partition: first}
  umbrella: {partitions: 2}
  hooli: {partition: 65}
  good: {partition: 3}
`))
	const want = `line 2: queues.a.partitions: must be a whole number, not "many"
line 3: queues.b.partitions: 0 must be at least 1
line 4: queues.c.partitions: must be a whole number, not "2.5"
line 5: queues.d.partitions: must be a whole number, not "99999999999999999999"
line 6: queues.e.partitions: 65 must be 1 to 64
line 7: queues.f.partition: unknown field; did you mean "partitions"?
line 8: queues.g.partitions: must be a whole number, not nothing
line 10: queues.h.partitions: leave it out, or max_queue and max_queue_bytes: partitions do not count together
line 14: queues.h.limits[1].per: partitions share only limits without per, adaptive and ramp: concurrency, fixed_window, token_bucket, and leaky_bucket without unit; any other limit must be per tenant: add tenant, or leave out partitions
line 17: queues.h.limits[4].per: partitions share one token_bucket or leaky_bucket without unit at most, and "account" is one: add tenant, or leave out partitions
line 21: queues.h.limits[8].burst: partitions share what is in the bucket, so it must hold what a quarter of a second brings: 417
line 22: queues.h.limits[9].per: partitions share only limits without per, adaptive and ramp: concurrency, fixed_window, token_bucket, and leaky_bucket without unit; any other limit must be per tenant: add tenant, or leave out partitions
line 28: plans.gold.partition: a plan has no partition: set that of each tenant
line 30: tenants.acme.partition: 4: queue h has 3 partitions
line 31: tenants.globex.partition: -1 must be at least 1
line 32: tenants.initech.partition: must be a whole number, not "first"
line 33: tenants.umbrella.partitions: unknown field; did you mean "partition"?
line 34: tenants.hooli.partition: 65 must be 1 to 64`
	if got := fmt.Sprint(err); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// TestPinWithoutPartitions: a tenant cannot be put into a partition where no queue has any.
func TestPinWithoutPartitions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"queues: {a: {}}\ntenants: {acme: {partition: 2}}":                                      "line 2: tenants.acme.partition: 2: no queue has partitions",
		"queues: {a: {partitions: 1}}\ntenants: {acme: {partition: 2}, globex: {partition: 1}}": "line 2: tenants.acme.partition: 2: no queue has partitions",
		"queues: {a: {}, b: {partitions: 2}}\ntenants: {acme: {partition: 2}}":                  "<nil>",
	} {
		if _, err := Parse([]byte(text)); fmt.Sprint(err) != want {
			t.Errorf("%s:\n%v; want %s", text, err, want)
		}
	}
}

// TestPinsOfDifferentFiles: a tenant that two files put in different partitions is not returned as if one file
// could say so.
func TestPinsOfDifferentFiles(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		a, b string // two files
		one  bool   // whether one file can say both
	}{
		"the same":         {"queues: {a: {partitions: 4}}\ntenants: {acme: {partition: 2}}", "queues: {b: {partitions: 3}}\ntenants: {acme: {partition: 2}}", true},
		"an undivided one": {"queues: {a: {partitions: 4}}\ntenants: {acme: {partition: 2}}", "queues: {b: {}}", true},
		"different":        {"queues: {a: {partitions: 4}}\ntenants: {acme: {partition: 2}}", "queues: {b: {partitions: 3}}\ntenants: {acme: {partition: 3}}", false},
		"in one":           {"queues: {a: {partitions: 4}}", "queues: {b: {partitions: 3}}\ntenants: {acme: {partition: 3}}", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Start(t).Client()
			for _, text := range []string{test.a, test.b} {
				set, err := Parse([]byte(text))
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
					if err == nil || !strings.Contains(err.Error(), `tenant "acme" has another partition in queue "b" than in queue "a": export one queue at a time`) {
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
