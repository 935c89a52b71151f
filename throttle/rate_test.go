package throttle

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]Rate{
		"300/s":        {Count: 300, Period: time.Second},
		" 5 / min ":    {Count: 5, Period: time.Minute},
		"10000/day":    {Count: 10000, Period: 24 * time.Hour},
		"1/90s":        {Count: 1, Period: 90 * time.Second},
		"7/1m30s":      {Count: 7, Period: 90 * time.Second},
		"5/100ms":      {Count: 5, Period: 100 * time.Millisecond},
		"1000000/s":    {Count: 1000000, Period: time.Second},
		"3/week":       {Count: 3, Period: 7 * 24 * time.Hour},
		"300000/month": {Count: 300000, Months: 1},
	} {
		got, err := ParseRate(text)
		if err != nil || got != want {
			t.Errorf("ParseRate(%q) = %+v, %v; want %+v", text, got, err, want)
		}
		if again, err := ParseRate(got.String()); err != nil || again != got {
			t.Errorf("%q prints as %q, which reads as %+v, %v", text, got, again, err)
		}
	}
	for text, want := range map[string]string{
		"":                         "must be COUNT/PERIOD",
		"300":                      "must be COUNT/PERIOD",
		"/s":                       "not a whole number",
		"1.5/s":                    "not a whole number",
		"many/s":                   "not a whole number",
		"9223372036854775808/s":    "not a whole number",
		"0/s":                      "at least 1",
		"-3/s":                     "at least 1",
		"1/":                       "period",
		"1/x":                      "period",
		"1/0s":                     "longer than 0",
		"1/-1s":                    "longer than 0",
		"1/10ns":                   "whole microseconds",
		"1/9000h":                  "longer than",
		"1000001/s":                "more than 1,000,000/s",
		"1/s/s":                    "period",
		strings.Repeat("x", 10000): "must be COUNT/PERIOD",
	} {
		_, err := ParseRate(text)
		if err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 250 {
			t.Errorf("ParseRate(%.20q): %v; want %q", text, err, want)
		}
	}
}

func FuzzParseRate(f *testing.F) {
	f.Add("300/s")
	f.Add("1/1h2m3s")
	f.Fuzz(func(t *testing.T, text string) {
		rate, err := ParseRate(text)
		if err != nil {
			return
		}
		if err := rate.Validate(); err != nil {
			t.Errorf("%q was read as %+v: %v", text, rate, err)
		}
		if again, err := ParseRate(rate.String()); err != nil || again != rate {
			t.Errorf("%q prints as %q, which reads as %+v, %v", text, rate, again, err)
		}
	})
}

func TestLimitValidate(t *testing.T) {
	for want, limit := range map[string]Limit{
		"name: required":                                                    {Algorithm: TokenBucket, Rate: PerSecond(1)},
		"name: must be at most 64":                                          {Name: strings.Repeat("x", 65), Algorithm: TokenBucket, Rate: PerSecond(1)},
		"name: must be valid UTF-8":                                         {Name: "caf\xe9", Algorithm: TokenBucket, Rate: PerSecond(1)},
		"algorithm: required":                                               {Name: "x", Rate: PerSecond(1)},
		"algorithm: \"gcra\" must be":                                       {Name: "x", Algorithm: "gcra", Rate: PerSecond(1)},
		"rate: required: COUNT/PERIOD, such":                                {Name: "x", Algorithm: TokenBucket},
		"rate: its count must be at least 1":                                {Name: "x", Algorithm: TokenBucket, Rate: PerSecond(0)},
		"burst: -1 must not be negative":                                    {Name: "x", Algorithm: TokenBucket, Rate: PerSecond(1), Burst: -1},
		"burst: only a token_bucket has one; a leaky_bucket has a capacity": {Name: "x", Algorithm: LeakyBucket, Rate: PerSecond(1), Burst: 2},
		"capacity: only a leaky_bucket":                                     {Name: "x", Algorithm: TokenBucket, Rate: PerSecond(1), Capacity: 2},
		"timezone: only a fixed_window":                                     {Name: "x", Algorithm: TokenBucket, Rate: PerSecond(1), Location: time.UTC},
		"rate: months differ":                                               {Name: "x", Algorithm: TokenBucket, Rate: Rate{Count: 1, Months: 1}},
		"timezone: windows of a month":                                      {Name: "x", Algorithm: FixedWindow, Rate: Rate{Count: 1, Months: 1}},
		"rate: calendar windows are per day":                                {Name: "x", Algorithm: FixedWindow, Rate: PerSecond(1), Location: time.UTC},
		"cannot be counted exactly":                                         {Name: "x", Algorithm: TokenBucket, Rate: Rate{Count: 7, Period: 365 * 24 * time.Hour}, Burst: 1e9},
		"rate: its period is longer than":                                   {Name: "x", Algorithm: TokenBucket, Rate: Rate{Count: 1, Period: math.MaxInt64 / 1000 * 1000}},
	} {
		if err := limit.Validate(); err == nil || !strings.HasPrefix(err.Error(), "throttle: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", limit, err, want)
		}
	}
}

// TestOneErrorForAnUnknownAlgorithm: which fields a limit needs depends on its algorithm, so nothing is said
// of them.
func TestOneErrorForAnUnknownAlgorithm(t *testing.T) {
	for _, limit := range []Limit{
		{Name: "x", Algorithm: "concurency", Concurrency: 5, Lease: time.Second},
		{Name: "x", Algorithm: "fixed-window", Rate: Rate{Count: 1, Months: 1}, Location: time.UTC},
		{Name: "x", Algorithm: "token bucket", Burst: 3, Shards: 100},
		{Name: "x", Burst: 3},
	} {
		err := limit.Validate()
		if field, ok := errors.AsType[*FieldError](err); !ok || field.Field != "algorithm" || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v; want one error, of the algorithm", limit, err)
		}
	}
}

// TestErrorsOfNew: each says of which limit it is, and what to do.
func TestErrorsOfNew(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	_, err := New(client, "", Limit{Name: "a", Algorithm: LeakyBucket, Rate: PerSecond(1), Burst: 2, Location: time.UTC},
		Limit{Name: "a", Algorithm: TokenBucket, Shards: 2})
	const want = `throttle: limit 1 "a": burst: only a token_bucket has one; a leaky_bucket has a capacity
throttle: limit 1 "a": timezone: only a fixed_window has one
throttle: limit 2 "a": rate: required: COUNT/PERIOD, such as 300/s, 10000/day or 1/90s
throttle: limit 2 "a": name: it is taken by another limit; names must differ
throttle: limit 2 "a": shards: limits that are taken together must be in one slot of a cluster, so none of them can be split`
	if fmt.Sprint(err) != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

func ExampleParseRate() {
	rate, err := ParseRate("90/min")
	fmt.Println(rate.Count, rate.Period, rate, err)
	_, err = ParseRate("90/fortnight")
	fmt.Println(err)
	// Output:
	// 90 1m0s 90/min <nil>
	// throttle: rate: "90/fortnight": period "fortnight" must be s, min, h, day, week, month or a duration such as 90s
}
