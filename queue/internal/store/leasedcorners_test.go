package store

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/test/redistest"
)

// TestLeaseCosts: a cost above the burst is never admitted. If the burst was raised, a span that was leased before
// admits no more than the burst of that time, and one that was leased since does.
func TestLeaseCosts(t *testing.T) {
	t.Parallel()
	none := fmt.Sprint("never ", slotsAhead+1)
	small, large := leasedSpan(2, 0, 0, 9_000_000), leasedSpan(5, 0, 0, 9_000_000)
	for name, c := range map[string]struct {
		limit limitlua.Spec
		text  string
		want  string // the earliest moments of 6 permits and of 3
	}{
		"a rate":                  {leasedRate, leasedText("l", 0, askedAt, large...), "never 0"},
		"a burst of 2":            {leasedRate, leasedText("l", 0, askedAt, small...), none},
		"a burst of 2, then of 5": {leasedRate, leasedText("l", 0, askedAt, append(leasedSpan(2, 0, 0, 200_000), leasedSpan(5, 400_000, 400_000, 9_000_000)...)...), "never 200000"},
		"a quota":                 {leasedQuota, leasedText("q", 0, askedAt, 9, 0, 9, ledgerAt, ledgerAt+500_000), "never 0"},
		"a pool":                  {leasedPool, leasedText("p", 0, askedAt, 9, 0, 9, ledgerAt+500_000, 0, 0), "never 0"},
	} {
		wantAnswers(t, name, c.limit, askedAt, c.text, []string{"earliest 0 6", "earliest 0 3"}, c.want, c.text)
	}
}

// TestLeasePause: a paused bucket admits nothing before the end of the pause.
func TestLeasePause(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit limitlua.Spec
		text  string
	}{
		"a rate":  {leasedRate, leasedText("l", 0, askedAt, leasedSpan(5, 0, 0, 9_000_000)...)},
		"a quota": {leasedQuota, leasedText("q", 0, askedAt, 5, 0, 5, ledgerAt, ledgerAt+500_000)},
		"a pool":  {leasedPool, leasedText("p", 0, askedAt, 5, 0, 5, ledgerAt+500_000, 0, 0)},
	} {
		text := fmt.Sprintf("%s !%d by hand", c.text, askedAt+300_000)
		wantAnswers(t, name, c.limit, askedAt, text, []string{"earliest 0 1", "earliest 350000 1", "left 0 0"}, "300000 350000 0", text)
	}
}

// TestLeaseAfterStepBack: after the clock was set back by more than a second, the bucket has nothing of what was leased
// by the old clock. It asks as a new holder, and a pause lasts as long as it was to last.
func TestLeaseAfterStepBack(t *testing.T) {
	t.Parallel()
	const back, pause = 3_600_000_000, 5_000_000
	for name, c := range map[string]struct {
		limit       limitlua.Spec
		letter      string
		had, hasNow []int64
	}{
		"a rate":  {leasedRate, "l", leasedSpan(5, -back, 0, 9_000_000), nil},
		"a quota": {leasedQuota, "q", []int64{5, 1, 4, ledgerAt - back, ledgerAt + 9_000_000}, []int64{0, 0, 0, 0, 0}},
		"a pool":  {leasedPool, "p", []int64{5, 1, 4, ledgerAt + 9_000_000, 2, ledgerAt, ledgerAt + 50_000, 1}, []int64{0, 0, 0, 0, 0, 0}},
	} {
		const last = askedAt + 2_000_000
		text := fmt.Sprintf("%s !%d by hand", leasedText(c.letter, last, askedAt, c.had...), askedAt+pause)
		one := []string{"earliest 0 1"}
		wantAnswers(t, name+" before the step", c.limit, askedAt, text, one, fmt.Sprint(pause), text)
		now := askedAt - back
		var want strings.Builder
		want.WriteString(fmt.Sprintf("%s %d 0 %d 1000000 500000 %d %d", c.letter, now, ledgerShift, last-back, now))
		for _, n := range c.hasNow {
			want.WriteString(fmt.Sprintf(" %d", n))
		}
		want.WriteString(fmt.Sprintf(" !%d by hand", now+pause))
		wantAnswers(t, name+" after the step", c.limit, now, text, one, fmt.Sprint(slotsAhead+1), want.String())
	}
}

// TestLeaseCharge: what calls used beyond their cost is taken from what is left. A rate gives it from the earliest
// spans, and owes nothing if there is less. A quota and a pool owe up to two buckets.
func TestLeaseCharge(t *testing.T) {
	t.Parallel()
	const before = askedAt - 10_000 // when the bucket was written
	// rate has 3 permits in a span and 2 in another one; quota and pool have 3 of 5, because the ledger took one back.
	rate := func(at, next, after int64) string {
		return leasedText("l", before, at, append(leasedSpan(5, 0, next, 500_000), leasedSpan(5, 700_000, after, 900_000)...)...)
	}
	quota := func(at, spent int64) string {
		return leasedText("q", before, at, 5, spent, 4, ledgerAt, ledgerAt+500_000)
	}
	pool := func(at, spent int64) string {
		return leasedText("p", before, at, 5, spent, 4, ledgerAt+500_000, 0, 0)
	}
	for _, c := range []struct {
		name   string
		limit  limitlua.Spec
		text   string
		n      int
		want   string
		stored string
	}{
		{"a rate", leasedRate, rate(before, 200_000, 700_000), 2, "5 done 3", rate(askedAt, 400_000, 700_000)},
		{"two spans", leasedRate, rate(before, 200_000, 700_000), 4, "5 done 1", rate(askedAt, 500_000, 800_000)},
		{"more than the spans", leasedRate, rate(before, 200_000, 700_000), 9, "5 done 0", rate(askedAt, 500_000, 900_000)},
		{"a quota", leasedQuota, quota(before, 1), 2, "3 done 1", quota(askedAt, 3)},
		{"more than the quota", leasedQuota, quota(before, 1), 4, "3 done 0", quota(askedAt, 5)},
		{"far more than the quota", leasedQuota, quota(before, 1), 900, "3 done 0", quota(askedAt, 15)},
		{"a pool", leasedPool, pool(before, 1), 2, "3 done 1", pool(askedAt, 3)},
		{"far more than the pool", leasedPool, pool(before, 1), 900, "3 done 0", pool(askedAt, 15)},
	} {
		wantAnswers(t, c.name, c.limit, askedAt, c.text, []string{"left 0 0", fmt.Sprint("charge 0 ", c.n), "left 0 0"}, c.want, c.stored)
	}
}

// TestLeaseOutsideItsWindow: what is taken or given back at a moment outside of the window of a quota changes nothing.
func TestLeaseOutsideItsWindow(t *testing.T) {
	t.Parallel()
	quota := func(last, spent int64) string {
		return leasedText("q", last, askedAt, 5, spent, 5, ledgerAt+100_000, ledgerAt+500_000)
	}
	text := quota(askedAt, 3)
	for moment, inside := range map[int64]bool{99_999: false, 100_000: true, 499_999: true, 500_000: false} {
		given, taken := text, text
		if inside {
			given, taken = quota(askedAt, 1), quota(askedAt+moment, 5)
		}
		name := fmt.Sprint("in ", moment, " µs")
		wantAnswers(t, name, leasedQuota, askedAt, text, []string{fmt.Sprintf("refund %d 2", moment)}, fmt.Sprint(inside), given)
		wantAnswers(t, name, leasedQuota, askedAt, text, []string{fmt.Sprintf("commit %d 2", moment)}, "done", taken)
	}
}

// TestLeaseOfFormerLimit: if a limit is not leased any more, what was spent of a quota in its window counts. A rate or a
// pool begins with all permits: these are leased until there is one partition, whose bucket is written then.
func TestLeaseOfFormerLimit(t *testing.T) {
	t.Parallel()
	quota := leasedText("q", askedAt, askedAt, 5, 4, 5, ledgerAt, ledgerAt+500_000)
	for name, c := range map[string]struct {
		text         string
		rate, window string // the answers of the one and of the other
		changes      bool
	}{
		"a rate":       {leasedText("l", askedAt, askedAt, leasedSpan(5, 0, 300_000, 500_000)...), "5 0", "5 0", false},
		"a quota":      {quota, "1 400000", "1 500000", true},
		"a window ago": {leasedText("q", askedAt, askedAt, 5, 4, 5, ledgerAt-500_000, ledgerAt), "5 0", "5 0", false},
		"a pool":       {leasedText("p", askedAt, askedAt, 5, 4, 5, ledgerAt+500_000, 0, 0), "5 0", "5 0", false},
	} {
		for limit, want := range map[*limitlua.Spec]string{&leasedRate: c.rate, &leasedQuota: c.window} {
			limit, stored := *limit, c.text
			limit.Leased = false
			if c.changes {
				stored = fmt.Sprintf("r %d 0 100000 1 %d %d 0", askedAt+400_000, askedAt, askedAt)
				if limit.Algorithm == "fw" {
					stored = fmt.Sprintf("f %d %d 4 %d %d", askedAt, askedAt+500_000, askedAt, askedAt)
				}
			}
			wantAnswers(t, name+" becomes "+limit.Algorithm, limit, askedAt, c.text, []string{"left 0 0", "earliest 0 5"}, want, stored)
		}
	}
	// Under another algorithm it is leased anew: the ledger knows what was used.
	empty := fmt.Sprintf("l %d 0 0 1000000 0 0 %d", askedAt, askedAt)
	wantAnswers(t, "a quota becomes a leased rate", leasedRate, askedAt, quota, []string{"left 0 0"}, "0", empty)
}

// TestLeaseOfARate: of a rate that was used before it was leased, what is owed still holds back what is leased; of one that
// has been idle, nothing does.
func TestLeaseOfARate(t *testing.T) {
	t.Parallel()
	client, key := redistest.Any(t).Client(), "lease:"+rand.Text()
	script := limitlua.NewScript(`
local now, later, plain, leased = tonumber(ARGV[1]), tonumber(ARGV[2]), cjson.decode(ARGV[3]), cjson.decode(ARGV[3])
plain.leased = false
local bucket = limit_open(plain, KEYS[1], now)
for _ = 1, 7 do limit_commit(plain, bucket, now, limit_earliest(plain, bucket, now, now, 1), 1) end
limit_save(bucket, now)
bucket = limit_open(leased, KEYS[1], later)
limit_left(leased, bucket, later)
return {bucket.kind, #bucket.spans}`)
	spec, err := json.Marshal(leasedRate)
	if err != nil {
		t.Fatal(err)
	}
	for later, want := range map[int64]string{askedAt: "[lease 1]", askedAt + 10_000_000: "[lease 0]"} {
		client.Del(t.Context(), key)
		reply, err := script.Run(t.Context(), client, []string{key}, askedAt, later, spec)
		if got := fmt.Sprint(reply); err != nil || got != want {
			t.Errorf("%d µs later: %s, %v; want %s", later-askedAt, got, err, want)
		}
	}
}
