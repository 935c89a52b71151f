package throttle

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestHostileRates: nonsense gets one error, on one line, of bounded length.
func TestHostileRates(t *testing.T) {
	long := strings.Repeat("9", 1<<20)
	for _, text := range []string{
		long, long + "/s", "1/" + long, "1/" + long + "s", long + "/" + long, strings.Repeat("ü", 1<<16) + "/s", strings.Repeat("\xff", 1<<16) + "/\x00",
		"1/\n\x1b[31mred", "1/s\nrate: 5/s", "\x00/\x00", "0x10/s", "1_000/s", "1e3/s", "٣/s", "NaN/s", "1/NaN", "1/+Inf", "1/1e300h", "1//s", "/", "//", " / ",
	} {
		rate, err := ParseRate(text)
		if err == nil {
			t.Errorf("%.30q was read as %v", text, rate)
			continue
		}
		if rate != (Rate{}) {
			t.Errorf("%.30q: an error and a rate: %v", text, rate)
		}
		message := err.Error()
		if len(message) > 700 || strings.ContainsAny(message, "\n\x00\x1b") || !utf8.ValidString(message) || !strings.HasPrefix(message, "throttle: rate: ") {
			t.Errorf("%.30q: %d bytes: %.100q", text, len(message), message)
		}
	}
}

// TestUsableLimits: the edges of what is accepted.
func TestUsableLimits(t *testing.T) {
	for _, limit := range []Limit{
		bucket("1/s", 0), bucket("1000000/s", 1e9), bucket("1/8784h", 60), leaky("1/8784h", 0), leaky("7/day", 1000),
		window("1/1us", nil), window("1/month", time.UTC), window("1/week", time.UTC), window("1/24h", time.Local), window("5/168h", nil),
	} {
		if err := limit.Validate(); err != nil {
			t.Errorf("%+v: %v", limit, err)
		}
	}
	// All that is wrong is said at once.
	err := Limit{Algorithm: FixedWindow, Rate: Rate{Count: -1}, Burst: -1, Capacity: -2, Shards: -1}.Validate()
	for _, want := range []string{"name:", "rate:", "burst:", "capacity:", "shards:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: says nothing about %s", err, want)
		}
	}
}
