package partition

import (
	"crypto/rand"
	_ "embed"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/testlong"
)

func TestMain(m *testing.M) {
	testlong.SameCases()
	redistest.Main(m)
}

//go:embed testdata/spans.lua
var spansLua string

var spansScript = limitlua.NewScript(spansLua)

// TestSpansAreBuckets holds the arithmetic of spans against limits.lua, to the unit: what a
// ledger leases is what a bucket would have given, and a holder spends its span as it would
// spend a bucket that begins there. So dispatch.lua can spend spans as it spends buckets.
func TestSpansAreBuckets(t *testing.T) {
	client := redistest.Shared(t).Client()
	rapid.Check(t, func(t *rapid.T) {
		limit := limitlua.Limit{Count: rapid.Int64Range(1, 100_000).Draw(t, "count"), Period: time.Duration(rapid.Int64Range(1, 5_000_000).Draw(t, "period")) * time.Microsecond}
		most := rapid.Int64Range(1, 1000).Draw(t, "most")
		if rapid.Bool().Draw(t, "bucket") {
			limit.Algorithm, limit.Burst = "token_bucket", most
		} else {
			limit.Algorithm, limit.Capacity = "leaky_bucket", most
		}
		ledger := NewLedger(limit.Spec(true, Horizon))
		spec := limit.Spec(true, time.Hour) // no slot is that far away
		now, err := client.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		us := now.UnixMicro()
		compare := func(what string, seed string, steps []any, want []string) {
			key := what + ":" + rand.Text() // the same cases are drawn again
			if seed != "" {
				if err := client.Set(t.Context(), key, seed, time.Minute).Err(); err != nil {
					t.Fatal(err)
				}
			}
			args := append([]any{spec.Algorithm, spec.Permit, spec.Flow, spec.Burst, spec.Ahead, ""}, steps...)
			reply, err := spansScript.Run(t.Context(), client, []string{key}, args...)
			if err != nil {
				t.Fatal(err)
			}
			for i, got := range reply.([]any) {
				if want[i] != "" && got != want[i] {
					t.Fatalf("%s, %+v: step %d: a bucket says %v and a span %s", what, limit, i/3, got, want[i])
				}
			}
		}

		var steps []any
		var want []string
		var span Span
		h := &Holder{Member: "q", ID: "1"}
		for range 10 {
			us += rapid.Int64Range(0, 200_000).Draw(t, "passed")
			ask := h.Ask(us, Need{Permits: h.Held() + rapid.Int64Range(1, 100).Draw(t, "permits")})
			answer := ledger.Ask(us, ask)
			if answer.Version == ask.Version {
				continue
			}
			h.Accept(answer)
			span = answer.Spans[len(answer.Spans)-1]
			n := span.permits(span.From, span.End)
			steps = append(steps, us, Lead.Microseconds(), n, 1)
			want = append(want, "", "", fmt.Sprintf("%d %d", span.End.US, span.End.Units))
		}
		compare("lease", "", steps, want)

		steps, want = nil, nil
		h = &Holder{Member: "q", ID: "2"}
		h.Accept(Answer{Version: 1, Spans: []Span{span}})
		us = span.From.US - Horizon.Microseconds()
		seed := fmt.Sprintf("r %d %d %d %d 0 %d 0", span.From.US, span.From.Units, span.Permit, span.Flow, us)
		for range 20 {
			us += rapid.Int64Range(0, 5_000).Draw(t, "passed")
			pickup := rapid.Int64Range(0, 20_000).Draw(t, "pickup")
			n := rapid.Int64Range(1, min(most, 3)).Draw(t, "n")
			slot, ok := h.Take(us, pickup, n)
			if !ok {
				break
			}
			next := h.spans[0].next
			steps = append(steps, us, pickup, n, 0)
			want = append(want, fmt.Sprint(slot.Earliest), fmt.Sprint(slot.Latest), fmt.Sprintf("%d %d", next.US, next.Units))
		}
		if len(steps) > 0 {
			compare("take", seed, steps, want)
		}
	})
}

var chargeScript = limitlua.NewScript(`
local limit = {a = ARGV[1], p = 1, r = 1, b = tonumber(ARGV[2]), ahead = 0, leased = true, pool = ARGV[1] == 'tb'}
local now = tonumber(ARGV[3])
local bucket = limit_open(limit, KEYS[1], now)
limit_charge(limit, bucket, now, 1)
limit_save(bucket, now)
return redis.call('GET', KEYS[1])`)

// TestChargesKeepWhatWasSpent: a charge under a smaller limit is bound by that, and what was spent before it stays.
func TestChargesKeepWhatWasSpent(t *testing.T) {
	client := redistest.Shared(t).Client()
	const now = int64(1_795_500_000_000_000)
	for algorithm, rest := range map[string]string{
		"fw": fmt.Sprintf("5 %%d 5 0 %d", now+second), // n, spent, keep, from, until
		"tb": fmt.Sprintf("5 %%d 5 %d 0 0", now+second),
	} {
		letter := map[string]string{"fw": "q", "tb": "p"}[algorithm]
		for spent, want := range map[int]int64{3: 4, 24: 25, 25: 25, 90: 90} {
			key := "charge:" + rand.Text()
			text := fmt.Sprintf("%s 1 1 0 1000000 0 0 %d "+rest, letter, now, spent)
			if err := client.Set(t.Context(), key, text, time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			reply, err := chargeScript.Run(t.Context(), client, []string{key}, algorithm, 10, now)
			if err != nil {
				t.Fatal(err)
			}
			lease, err := limitlua.ReadLease(reply.(string))
			if err != nil {
				t.Fatal(err)
			}
			if lease.Spent != want {
				t.Errorf("%s of 10, 5 leased: %d spent, and %d after a charge of 1; want %d", algorithm, spent, lease.Spent, want)
			}
		}
	}
}
