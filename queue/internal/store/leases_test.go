package store

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/redistest"
)

// leaseScript does one step of a holder with a bucket: ARGV[7] is the time on the
// ledger's clock, ARGV[8] by how much that is ahead, and ARGV[9] the step. A step that takes
// ARGV[10] permits takes none before ARGV[11] µs have passed. KEYS[2] is the family of the limit.
var leaseScript = limitlua.NewScript(`
local limit, shift = limit_read(1), tonumber(ARGV[8])
local now = tonumber(ARGV[7]) - shift
limit.leased, limit.pool = true, KEYS[2] == 'pool'
local bucket, reply = limit_open(limit, KEYS[1], now), {}
limit_left(limit, bucket, now)
bucket.shift = shift
if ARGV[9] == 'take' then
  local n = tonumber(ARGV[10])
  local e = limit_earliest(limit, bucket, now, now + tonumber(ARGV[11] or 0), n)
  if e and e <= now + limit.ahead then
    local c = math.max(e, now + 25000)
    limit_commit(limit, bucket, now, c, n)
    reply = {e + shift, c + shift}
  end
elseif ARGV[9] == 'return' then
  limit_refund(limit, bucket, now, tonumber(ARGV[11]) - shift, tonumber(ARGV[10]))
elseif ARGV[9] == 'ask' then
  local keep, have = lease_keep(bucket, now, tonumber(ARGV[10]), tonumber(ARGV[11]))
  reply = {have, bucket.version, unpack(keep)}
else
  local numbers = {}
  for i = 11, #ARGV do numbers[#numbers + 1] = tonumber(ARGV[i]) end
  lease_accept(bucket, tonumber(ARGV[10]), 1, 1, numbers)
end
limit_save(bucket, now)
for i, n in ipairs(reply) do reply[i] = string.format('%.0f', n) end
return reply
`, Lua("leases"))

// TestLeasesAreHolders holds the bucket of a leased limit against partition.Holder, step by step.
func TestLeasesAreHolders(t *testing.T) {
	client := redistest.Shared(t).Client()
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		limit := limitlua.Limit{Count: rapid.Int64Range(1, 100_000).Draw(t, "count"), Period: time.Duration(rapid.Int64Range(1, 5_000_000).Draw(t, "period")) * time.Microsecond}
		most := rapid.Int64Range(1, 50).Draw(t, "most")
		pool := false
		switch rapid.IntRange(0, 3).Draw(t, "algorithm") {
		case 0:
			limit.Algorithm, limit.Burst = "token_bucket", most
		case 3:
			limit.Algorithm, limit.Burst, pool = "token_bucket", most, true
		case 1:
			limit.Algorithm, limit.Capacity = "leaky_bucket", most
		default:
			limit.Algorithm, limit.Count, limit.Period = "fixed_window", 4*most, time.Second
		}
		spec := limit.Spec(true, partition.Horizon)
		spec.Pool = pool
		ledger, family := partition.NewLedger(spec), partition.Family(spec)
		spec.Ahead = time.Hour.Microseconds() // a slow rate's next slot is far ahead
		key := "lease:" + rand.Text()         // the same cases are drawn again
		window := ""
		if spec.Window > 0 {
			window = fmt.Sprint(spec.Window)
		}
		us, shift := time.Now().UnixMicro(), rapid.Int64Range(-2_000_000, 2_000_000).Draw(t, "shift")
		step := func(args ...any) []string {
			reply, err := leaseScript.Run(t.Context(), client, []string{key, family}, append([]any{spec.Algorithm, spec.Permit, spec.Flow, spec.Burst, spec.Ahead, window, us, shift}, args...)...)
			if err != nil {
				t.Fatal(err)
			}
			var words []string
			for _, word := range reply.([]any) {
				words = append(words, word.(string))
			}
			return words
		}
		h := &partition.Holder{Member: "q", ID: "1", Pool: pool}
		other := &partition.Holder{Member: "r", ID: "2", Pool: pool}
		var late []partition.Answer
		accept := func(answer partition.Answer) {
			h.Accept(answer)
			words := []any{"accept", answer.Version}
			switch family {
			case "fw":
				words = append(words, answer.N, answer.From, answer.Until)
			case "pool":
				words = append(words, answer.N, answer.Until, answer.Back)
			}
			for _, s := range answer.Spans {
				words = append(words, s.Permit, s.Flow, s.Burst, s.From.US, s.From.Units, s.End.US, s.End.Units)
			}
			step(words...)
		}
		type slotted struct{ n, latest int64 }
		var gone []slotted
		for range 40 {
			us += rapid.Int64Range(0, 60_000).Draw(t, "passed")
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				need := rapid.Int64Range(0, 60).Draw(t, "need")
				least := rapid.Int64Range(0, 4).Draw(t, "least")
				ask := h.Ask(us, partition.Need{Permits: need, Least: least, Weight: 1})
				want := []string{fmt.Sprint(max(0, need-ask.Want)), fmt.Sprint(ask.Version)}
				switch family {
				case "fw":
					want = []string{want[1], fmt.Sprint(ask.N)}
				case "pool":
					want = []string{want[1], fmt.Sprint(ask.N), fmt.Sprint(ask.Spent), fmt.Sprint(ask.Back), fmt.Sprint(ask.Since), fmt.Sprint(ask.At)}
				}
				for _, s := range ask.Keep {
					want = append(want, fmt.Sprint(s.From.US), fmt.Sprint(s.From.Units), fmt.Sprint(s.End.US), fmt.Sprint(s.End.Units))
				}
				got := step("ask", need, least)
				switch family { // without what it had
				case "fw":
					got = got[1:3]
				case "pool":
					got = slices.Concat(got[1:3], got[4:])
				}
				if strings.Join(got, " ") != strings.Join(want, " ") {
					t.Fatalf("asks with %v, and a holder with %v", got, want)
				}
				late = append(late, ledger.Ask(us, ask))
				other.Accept(ledger.Ask(us, other.Ask(us, partition.Need{Permits: rapid.Int64Range(0, 60).Draw(t, "other"), Weight: 1})))
			case 1: // answers may come late, twice, and in another order
				if len(late) > 0 {
					accept(late[rapid.IntRange(0, len(late)-1).Draw(t, "answer")])
				}
			case 2:
				if pool && len(gone) > 0 {
					one := gone[0]
					gone = gone[1:]
					h.Return(one.n, one.latest)
					step("return", one.n, one.latest)
				}
			default:
				n := rapid.Int64Range(1, min(most, 5)).Draw(t, "n")
				want := ""
				take := h.Take
				if family != "rate" {
					take = h.Spend
				}
				if slot, ok := take(us, 25_000, n); ok {
					want = fmt.Sprint(slot.Earliest, " ", slot.Latest)
					taken++
					gone = append(gone, slotted{n, slot.Latest})
				}
				if got := strings.Join(step("take", n), " "); got != want {
					t.Fatalf("%d permits: the bucket gives %q, and a holder %q", n, got, want)
				}
			}
		}
	})
	if taken == 0 {
		t.Error("nothing was taken")
	}
}

// TestQuotaEndsBeforeItsWindow: a slot that another limit puts at the end of a quota's window is not given,
// because a call that takes its time to leave would reach the receiver in the next window.
func TestQuotaEndsBeforeItsWindow(t *testing.T) {
	client := redistest.Shared(t).Client()
	limit := limitlua.Limit{Algorithm: "fixed_window", Count: 100, Period: time.Second}
	spec := limit.Spec(true, 3*Horizon)
	const now, ends = 1_000_000_000_900_000, 1_000_000_001_000_000
	key := "lease:" + rand.Text()
	step := func(args ...any) []any {
		reply, err := leaseScript.Run(t.Context(), client, []string{key, "fw"}, append([]any{spec.Algorithm, spec.Permit, spec.Flow, spec.Burst, spec.Ahead, spec.Window, now, 0}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return reply.([]any)
	}
	step("accept", 1, 100, ends-1_000_000, ends)
	for _, c := range []struct {
		later int64 // µs
		given bool
	}{
		{0, true},
		{ends - now - 25_001, true},
		{ends - now - 25_000, false},
		{ends - now - 1, false},
	} {
		if slot := step("take", 1, c.later); (len(slot) > 0) != c.given {
			t.Errorf("%d µs before the window ends: a slot at %v", ends-now-c.later, slot)
		}
	}
}
