package throttle

import (
	"math/big"
	"testing"

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
			most.Add(big.NewRat(1, 1), big.NewRat(newP*r, newR*p)) // a µs of either rate
			most.Add(most, new(big.Rat).Mul(want, big.NewRat(1, 1<<48)))
		}
		if over.Sign() < 0 || over.Cmp(most) > 0 {
			rt.Fatalf("%v at %v becomes %s µs at %v, %s too much", want, was, got.FloatString(6), is, over.FloatString(9))
		}
	})
}
