package throttle

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/test/redistest"
)

// convertScript bares what a debt becomes under another rate.
var convertScript = limitlua.NewScript(`
local whole, frac = rate_convert({ p = tonumber(ARGV[1]), r = tonumber(ARGV[2]) },
  tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]))
return { whole, frac }`)

// TestConvert: a debt keeps its number of permits when the rate changes, or
// becomes a little more, by less than a µs where the numbers are no larger than
// a bucket's, and by no more than doubles round where they are.
func TestConvert(t *testing.T) {
	client := redistest.Shared(t).Client()
	rapid.Check(t, func(rt *rapid.T) {
		rate := func(name string) Rate {
			r := Rate{Count: rapid.Int64Range(1, 1e6).Draw(rt, name), Period: rapid.SampledFrom([]Rate{PerSecond(1), mustRate("1/min"), mustRate("1/h"), mustRate("1/day")}).Draw(rt, name+" per").Period}
			return r
		}
		was, is := rate("was"), rate("is")
		p, r := was.units()
		newP, newR := is.units()
		whole := rapid.Int64Range(0, rapid.SampledFrom([]int64{1e3, 1e7, 1e10, 3e13}).Draw(rt, "scale")).Draw(rt, "whole")
		frac := rapid.Int64Range(0, r-1).Draw(rt, "frac")
		reply, err := convertScript.Run(t.Context(), client, nil, newP, newR, whole, frac, p, r)
		if err != nil {
			rt.Fatal(err)
		}
		values := reply.([]any)
		if values[1].(int64) < 0 || values[1].(int64) >= newR {
			rt.Fatalf("%v: the rest is not below %d", values, newR)
		}
		got := new(big.Rat).Add(big.NewRat(values[0].(int64), 1), big.NewRat(values[1].(int64), newR))
		want := new(big.Rat).Add(big.NewRat(whole, 1), big.NewRat(frac, r))
		want.Mul(want, big.NewRat(r, p)).Mul(want, big.NewRat(newP, newR))
		if most := big.NewRat(1<<51, 1); want.Cmp(most) > 0 && values[0].(int64) >= 1<<51 {
			return // no more of it matters, and the numbers stay integers
		}
		over := new(big.Rat).Sub(got, want)
		most := big.NewRat(1, newR) // a unit
		if whole*r >= 1<<52 || want.Cmp(big.NewRat(1<<52/newR, 1)) > 0 || p >= 1<<26 || newP >= 1<<26 {
			most.Add(big.NewRat(2, 1), big.NewRat(newP*r, newR*p)) // a µs of the old rate, and up to two of the new one
			most.Add(most, new(big.Rat).Mul(want, big.NewRat(1, 1<<48)))
		}
		if over.Sign() < 0 || over.Cmp(most) > 0 {
			rt.Fatalf("%v at %v becomes %s µs at %v, %s too much", want, was, got.FloatString(6), is, over.FloatString(9))
		}
	})
}

// TestConvertLargeDebts: a debt whose units are no exact integers is converted all the same, to no less, and to no more
// than 2^51 µs, which are 71 years.
func TestConvertLargeDebts(t *testing.T) {
	client := redistest.Shared(t).Client()
	const year = int64(366 * day / time.Microsecond)
	for name, debt := range map[string]struct {
		whole, frac, p, r, newP, newR int64
	}{
		"units of the old rate":  {year, 999_998, 1, 999_999, 1_000_003, 999_999_000_000},
		"units of the new rate":  {year, 0, 1_000, 1, 999_999_999, 1_000_000},
		"a part of a permit":     {99_999_999, 0, 100_000_007, 1, 99_999_989, 1},
		"71 years, and not more": {year, 0, 1, 1, 1_000, 1},
	} {
		reply, err := convertScript.Run(t.Context(), client, nil, debt.newP, debt.newR, debt.whole, debt.frac, debt.p, debt.r)
		if err != nil {
			t.Fatal(err)
		}
		values := reply.([]any)
		got, rest := values[0].(int64), values[1].(int64)
		exact := new(big.Rat).Add(big.NewRat(debt.whole, 1), big.NewRat(debt.frac, debt.r))
		exact.Mul(exact, big.NewRat(debt.r, debt.p)).Mul(exact, big.NewRat(debt.newP, debt.newR))
		least := exact
		if most := big.NewRat(1<<51, 1); exact.Cmp(most) > 0 {
			least = most
		}
		// Up to a µs more before the rate changes, two after it, and what floats round.
		over := new(big.Rat).Add(big.NewRat(2, 1), big.NewRat(debt.r*debt.newP, debt.p*debt.newR))
		over.Add(over, new(big.Rat).Mul(least, big.NewRat(1, 1<<48)))
		if is := big.NewRat(got, 1); rest != 0 || is.Cmp(least) < 0 || got > 1<<51 || is.Cmp(over.Add(over, least)) > 0 {
			t.Errorf("%s: %d µs and %d units; want %s µs", name, got, rest, least.FloatString(3))
		}
	}
}
