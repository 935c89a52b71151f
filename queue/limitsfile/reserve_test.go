package limitsfile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/queue/limits"
)

const reserveFile = `queues:
  webhook:
    kinds: [webhook]
    limits:
      - {name: account, algorithm: leaky_bucket, rate: 100/s, capacity: 900, adaptive: true, reserve: {direct: 20%, jobs: 60%}}
      - {name: calls, concurrency: 5, reserve: {jobs: 15%}}
      - {name: daily, algorithm: fixed_window, rate: 10000/day, timezone: UTC, per: [tenant], reserve: {direct: 1%}}
      - {name: tenant, algorithm: token_bucket, rate: 7/s, burst: 20, per: [tenant], reserve: {direct: 30%}}
      - {name: slow, algorithm: token_bucket, rate: 1/h, for: direct}
plans:
  large: {limits: {webhook: {tenant: {rate: 700/s}}}}
tenants:
  acme: {plan: large, limits: {webhook: {daily: {rate: 500/day}}}}
  own: {limits: {webhook: {tenant: {rate: 3/s}, tenant-jobs: {burst: 9}}}}
  both: {plan: large, limits: {webhook: {tenant: {burst: 500}}}}
`

// TestReserve: what a limit keeps for one side, the other side has a limit of the rest for, also where a tenant has other
// numbers.
func TestReserve(t *testing.T) {
	set, err := Parse([]byte(reserveFile))
	if err != nil {
		t.Fatal(err)
	}
	text := func(l limits.Limit) string {
		return fmt.Sprint(l.Name, " ", l.Algorithm, " ", l.Rate, " burst ", l.Burst, " capacity ", l.Capacity, " calls ", l.Concurrency, " ", l.Per, " for ", l.For, map[bool]string{true: " adaptive"}[l.Adaptive])
	}
	var got []string
	for _, l := range set.Queues["webhook"].Limits[4:] {
		got = append(got, text(l))
	}
	want := []string{
		"slow token_bucket 1/h burst 0 capacity 0 calls 0 [] for direct",
		"account-jobs token_bucket 80/s burst 21 capacity 0 calls 0 [] for jobs adaptive",
		"account-direct token_bucket 40/s burst 11 capacity 0 calls 0 [] for direct adaptive",
		"calls-direct concurrency 0/0s burst 0 capacity 0 calls 4 [] for direct",
		"daily-jobs fixed_window 9900/day burst 0 capacity 0 calls 0 [tenant] for jobs",
		"tenant-jobs token_bucket 49/10s burst 14 capacity 0 calls 0 [tenant] for jobs",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the limits are\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for tenant, want := range map[string]string{"acme": "daily-jobs rate 495/day tenant-jobs rate 490/s burst 124", "own": "tenant-jobs burst 9", "both": "tenant-jobs rate 490/s burst 350"} {
		var words []string
		for _, name := range []string{"daily-jobs", "tenant-jobs"} {
			if change, ok := set.Tenants[tenant].Limits["webhook"][name]; ok {
				words = append(words, name, strings.ReplaceAll(change.String(), ",", ""))
			}
		}
		if got := strings.Join(words, " "); got != want {
			t.Errorf("tenant %s: %s, not %s", tenant, got, want)
		}
	}
	written, err := Format(set)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(written)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := fmt.Sprint(set.Queues["webhook"].Limits), fmt.Sprint(again.Queues["webhook"].Limits); len(a) != len(b) || !strings.Contains(string(written), "for: jobs") {
		t.Errorf("written and read again:\n%s\n%s", a, b)
	}
}

// TestReserveOfAGroup: what a limit keeps for one side, it keeps of a group's own numbers, and of those of its tenants.
func TestReserveOfAGroup(t *testing.T) {
	set, err := Parse([]byte(`queues:
  webhook:
    kinds: [webhook]
    limits:
      - {name: group, algorithm: token_bucket, rate: 100/s, burst: 100, per: [group], reserve: {direct: 20%}}
      - {name: both, algorithm: token_bucket, rate: 100/s, burst: 100, per: [group, tenant], reserve: {direct: 20%}}
groups:
  slow: {limits: {webhook: {group: {rate: 10/s}, both: {rate: 10/s}}}}
  fast: {limits: {webhook: {group: {rate: 1000/s}, group-jobs: {rate: 7/s}}}}
tenants:
  acme: {group: slow, limits: {webhook: {both: {burst: 50}}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		got  limits.Change
		want string
	}{
		{set.Groups["slow"].Limits["webhook"]["group-jobs"], "rate 8/s, burst 80"},
		{set.Groups["slow"].Limits["webhook"]["both-jobs"], "rate 8/s, burst 80"},
		{set.Groups["fast"].Limits["webhook"]["group-jobs"], "rate 7/s"},
		{set.Tenants["acme"].Limits["webhook"]["both-jobs"], "rate 8/s, burst 40"},
	} {
		if got := test.got.String(); got != test.want {
			t.Errorf("%q; want %q", got, test.want)
		}
	}
	_, err = Parse([]byte(`queues: {q: {kinds: [q], limits: [{name: a, algorithm: fixed_window, rate: 9/day, per: [group], reserve: {jobs: 50%}}]}}
groups: {g: {limits: {q: {a: {rate: 1/day}}}}}
tenants: {t: {group: g}}
`))
	if want := "line 2: groups.g.limits.q.a.rate: "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("nothing of 1/day is left: %v; want %s", err, want)
	}
}

// TestMistakesOfReserves: each is said of where it is in the file.
func TestMistakesOfReserves(t *testing.T) {
	for reserve, want := range map[string]string{
		"rate: 9/s, reserve: {direct: 20}":                                 `queues.q.limits[0].reserve.direct: must be 1% to 99%, in whole percent`,
		"rate: 9/s, reserve: {direct: 0%}":                                 `queues.q.limits[0].reserve.direct: must be 1%`,
		"rate: 9/s, reserve: {direct: 100%}":                               `queues.q.limits[0].reserve.direct: must be 1%`,
		"rate: 9/s, reserve: {direct: 1.5%}":                               `queues.q.limits[0].reserve.direct: must be 1%`,
		"rate: 9/s, reserve: {direct: 01%}":                                `queues.q.limits[0].reserve.direct: must be 1%`,
		"rate: 9/s, reserve: {queue: 5%}":                                  `queues.q.limits[0].reserve.queue: unknown`,
		"rate: 9/s, reserve: 20%":                                          `queues.q.limits[0].reserve: must`,
		"rate: 9/s, for: job":                                              `queues.q.limits[0].for: "job" must be jobs or direct, or left out for both; did you mean "jobs"?`,
		"rate: 1/8784h, reserve: {jobs: 5%}":                               `queues.q.limits[0].reserve.jobs`,
		"rate: 9/s, algorithm: leaky_bucket, unit: x, reserve: {jobs: 5%}": `queues.q.limits[0].reserve: a leaky_bucket with a unit keeps nothing`,
		"algorithm: concurrency, concurrency: 1, reserve: {jobs: 5%}":      `queues.q.limits[0].reserve.jobs.concurrency`,
		"algorithm: fixed_window, rate: 1/day, reserve: {jobs: 5%}":        `queues.q.limits[0].reserve.jobs.rate`,
	} {
		algorithm := "algorithm: token_bucket, "
		if strings.Contains(reserve, "algorithm") {
			algorithm = ""
		}
		_, err := Parse([]byte("queues: {q: {kinds: [q], limits: [{name: a, " + algorithm + reserve + "}]}}"))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), "queues.q") != 1 {
			t.Errorf("%s: %v", reserve, err)
		}
	}
	taken := "queues: {q: {kinds: [q], limits: [{name: a, algorithm: token_bucket, rate: 9/s, reserve: {direct: 5%}}, {name: a-jobs, algorithm: token_bucket, rate: 1/s}]}}"
	if _, err := Parse([]byte(taken)); err == nil || !strings.Contains(err.Error(), `limits[0].reserve.direct.name: "a-jobs" is the name of another limit`) {
		t.Errorf("a name that is taken: %v", err)
	}
	divided := "queues: {q: {kinds: [q], partitions: 2, limits: [{name: a, algorithm: fixed_window, rate: 9/day, reserve: {direct: 50%}}]}}"
	if _, err := Parse([]byte(divided)); err == nil || !strings.Contains(err.Error(), "limits[0].reserve.direct.for: partitions share the limit for their jobs alone") {
		t.Errorf("a limit that partitions share: %v", err)
	}
	budget := "queues: {q: {kinds: [q]}, r: {kinds: [r]}}\nbudgets: [{name: b, rate: 9/day, queues: [q, r], reserve: {jobs: 5%}}]"
	if _, err := Parse([]byte(budget)); err == nil || !strings.Contains(err.Error(), "budgets[0].reserve: unknown") {
		t.Errorf("a budget: %v", err)
	}
}
