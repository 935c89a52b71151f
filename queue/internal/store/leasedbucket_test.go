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

// askedScript opens the bucket with the text ARGV[3], calls functions of limits.lua with it, and saves it.
// ARGV[1] is the limit, as JSON, ARGV[2] the time, and from ARGV[4] on there are the calls: the name without
// "limit_", then the moment, in µs from now, and the permits. It returns the answers, and what is stored then.
var askedScript = limitlua.NewScript(`
local limit, now = cjson.decode(ARGV[1]), tonumber(ARGV[2])
redis.call('SET', KEYS[1], ARGV[3])
local bucket = limit_open(limit, KEYS[1], now)
local call = {
  earliest = function(t, n)
    local e = limit_earliest(limit, bucket, now, now + t, n)
    return e and string.format('%.0f', e - now) or 'never'
  end,
  commit = function(t, n)
    limit_commit(limit, bucket, now, now + t, n)
    return 'done'
  end,
  refund = function(t, n) return tostring(limit_refund(limit, bucket, now, now + t, n)) end,
  charge = function(_, n)
    limit_charge(limit, bucket, now, n)
    return 'done'
  end,
  left = function() return string.format('%.0f', limit_left(limit, bucket, now)) end,
}
local answers = {}
for i = 4, #ARGV do
  local name, t, n = string.match(ARGV[i], '^(%a+) (%d+) (%d+)$')
  answers[#answers + 1] = call[name](tonumber(t), tonumber(n))
end
limit_save(bucket, now)
return {table.concat(answers, ' '), redis.call('GET', KEYS[1])}
`)

const (
	askedAt     = int64(1_700_000_000_000_000)
	ledgerShift = int64(3_000_000) // by how much the ledger's clock is ahead
	ledgerAt    = askedAt + ledgerShift
	slotsAhead  = int64(60_000_000) // how far ahead slots are granted, in µs
)

// The leased limits of these tests have 10 permits a second, and 5 of them in a bucket or a window.
var (
	leasedRate  = limitlua.Spec{Algorithm: "tb", Permit: 100_000, Flow: 1, Burst: 5, Ahead: slotsAhead, Leased: true}
	leasedQuota = limitlua.Spec{Algorithm: "fw", Permit: 1, Flow: 1, Burst: 5, Window: 500_000, Ahead: slotsAhead, Leased: true}
	leasedPool  = limitlua.Spec{Algorithm: "tb", Permit: 100_000, Flow: 1, Burst: 5, Ahead: slotsAhead, Leased: true, Pool: true}
)

// leasedText returns the text of a leased bucket, with the latest moment given and when it was written, and with the
// numbers of what was leased.
func leasedText(letter string, last, at int64, numbers ...int64) string {
	var text strings.Builder
	text.WriteString(fmt.Sprintf("%s 7 3 %d 1000000 500000 %d %d", letter, ledgerShift, last, at))
	for _, n := range numbers {
		text.WriteString(fmt.Sprintf(" %d", n))
	}
	return text.String()
}

// leasedSpan returns the numbers of a part of the timeline of leasedRate: from, next and keep are in µs from ledgerAt.
func leasedSpan(burst, from, next, keep int64) []int64 {
	return []int64{100_000, 1, burst, ledgerAt + from, 0, ledgerAt + next, 0, ledgerAt + keep, 0}
}

// ask returns the answers of a bucket to calls, separated by spaces, and its text after them.
func ask(t *testing.T, limit limitlua.Spec, now int64, text string, calls ...string) (answers, stored string, err error) {
	t.Helper()
	spec, err := json.Marshal(limit)
	if err != nil {
		t.Fatal(err)
	}
	client := redistest.Shared(t).Client()
	key := "leased:" + rand.Text()
	args := []any{spec, now, text}
	for _, call := range calls {
		args = append(args, call)
	}
	reply, err := askedScript.Run(t.Context(), client, []string{key}, args...)
	if err != nil {
		return "", client.Get(t.Context(), key).Val(), err
	}
	words := reply.([]any)
	return words[0].(string), words[1].(string), nil
}

// wantAnswers fails the test if a bucket gives other answers to calls, or has another text after them.
func wantAnswers(t *testing.T, name string, limit limitlua.Spec, now int64, text string, calls []string, want, wantStored string) {
	t.Helper()
	answers, stored, err := ask(t, limit, now, text, calls...)
	if err != nil || answers != want {
		t.Errorf("%s: %q is answered with %s, %v; want %s", name, calls, answers, err, want)
	}
	if stored != wantStored {
		t.Errorf("%s: after %q the bucket is\n%s; want\n%s", name, calls, stored, wantStored)
	}
}

// TestDamagedLeases: a text that only looks like a leased bucket is an error, and is not changed.
func TestDamagedLeases(t *testing.T) {
	t.Parallel()
	const large = "99999999999999999999"
	for _, c := range []struct {
		limit limitlua.Spec
		text  string
	}{
		{leasedRate, leasedText("l", askedAt, askedAt, leasedSpan(5, 0, 0, 500_000)[:8]...)},
		{leasedRate, leasedText("l", askedAt, askedAt, 0, 1, 5, 1, 0, 1, 0, 1, 0)},
		{leasedRate, leasedText("l", askedAt, askedAt, 1, 0, 5, 1, 0, 1, 0, 1, 0)},
		{leasedRate, "l 7 3 0 1 1 1"},
		{leasedRate, "l " + large + " 3 0 1 1 1 1"},
		{leasedQuota, leasedText("q", askedAt, askedAt, 5, 3, 5, 1)},
		{leasedQuota, leasedText("q", askedAt, askedAt, 5, 3, 5, 1) + " " + large},
		{leasedPool, leasedText("p", askedAt, askedAt, 5, 3, 5, 1)},
		{leasedPool, leasedText("p", askedAt, askedAt, 5, 3, 5, 1, 0)},
		{leasedPool, leasedText("p", askedAt, askedAt, 5, 3, 5, 1, 0, 0, 1)},
	} {
		answers, stored, err := ask(t, c.limit, askedAt, c.text, "left 0 0", "commit 0 1")
		if err == nil || !strings.Contains(err.Error(), "holds no bucket") || stored != c.text {
			t.Errorf("%q: %s, %v, and %q is stored", c.text, answers, err, stored)
		}
	}
}
