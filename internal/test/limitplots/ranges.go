package main

import (
	"fmt"
	"io"
	"sort"

	"github.com/headgate/headgate/throttle"
)

// printRanges prints the largest valid size of limits with various rates.
func printRanges(out io.Writer) error {
	fmt.Fprintln(out, "| rate | largest burst or capacity | count of a fixed window | of a sliding window counter |")
	fmt.Fprintln(out, "|---|---|---|---|")
	for _, text := range []string{"1/8784h", "1/day", "7/day", "1/h", "1/min", "1/s", "1000/s", "9973/s", "1000000/s"} {
		rate, err := throttle.ParseRate(text)
		if err != nil {
			return err
		}
		// A count is the rate itself, with the same period.
		count := func(algorithm throttle.Algorithm) string {
			return largest(func(n int64) throttle.Limit {
				return throttle.Limit{Name: "x", Algorithm: algorithm, Rate: throttle.Rate{Count: n, Period: rate.Period}}
			})
		}
		burst := largest(func(n int64) throttle.Limit {
			return throttle.Limit{Name: "x", Algorithm: throttle.TokenBucket, Rate: rate, Burst: n}
		})
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", text, burst, count(throttle.FixedWindow), count(throttle.SlidingWindowCounter))
	}
	return nil
}

// largest returns the largest n for which the limit is valid.
func largest(limit func(n int64) throttle.Limit) string {
	n := sort.Search(1<<53, func(n int) bool { return n > 0 && limit(int64(n)).Validate() != nil }) - 1
	return grouped(n)
}

// grouped formats a number with thousands separators.
func grouped(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
