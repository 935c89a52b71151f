package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// tiny is a run of moments: what it says about speed is nothing.
func tiny(t *testing.T, args ...string) config {
	t.Helper()
	c, err := parse(append([]string{"-rounds", "1", "-slice", "20ms"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	c.fresh = 100
	return c
}

func startBench(t *testing.T) *bench {
	t.Helper()
	b, err := newBench(t.Context(), tiny(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	return b
}

func mustSlice(t *testing.T, b *bench, c *contender, l load) sample {
	t.Helper()
	s, err := b.slice(t.Context(), c, l, 30*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if s.decisions == 0 {
		t.Fatalf("no decision in %v", s.elapsed)
	}
	// Nothing else here gives up because others want the same key.
	if s.failed > 0 && (c.name != "throttled" || l != many && l != manyRefused) {
		t.Errorf("%d calls failed: %v", s.failed, s.failure)
	}
	return s
}

func TestAdmitted(t *testing.T) {
	b := startBench(t)
	for _, c := range b.contenders {
		t.Run(c.name, func(t *testing.T) {
			for _, l := range []load{alone, many, many10k} {
				if s := mustSlice(t, b, c, l); s.admitted != s.decisions {
					t.Errorf("%v: %d of %d admitted, want all", l, s.admitted, s.decisions)
				}
			}
			if c.scarce == nil {
				return
			}
			from := time.Now()
			s := mustSlice(t, b, c, manyRefused)
			// Ten, and what flows back meanwhile; a window may end meanwhile.
			least, most := scarce.burst, scarce.burst
			most += int64(time.Since(from) * time.Duration(scarce.count) / scarce.period)
			if !from.Truncate(scarce.period).Equal(time.Now().Truncate(scarce.period)) {
				most += scarce.burst
			}
			if s.admitted < least || s.admitted > most {
				t.Errorf("%v: %d admitted, want %d to %d", manyRefused, s.admitted, least, most)
			}
		})
	}
}

func TestRoundTrips(t *testing.T) {
	b := startBench(t)
	for _, c := range b.contenders {
		if !strings.HasPrefix(c.name, "headgate ") {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			mustSlice(t, b, c, alone) // connects, and loads the script
			each := int64(1)
			if c.name == "headgate concurrency" {
				each = 2 // it also releases
			}
			if s := mustSlice(t, b, c, alone); s.trips != each*s.decisions {
				t.Errorf("%v: %d round trips for %d decisions, want %d each", alone, s.trips, s.decisions, each)
			}
			if each > 1 {
				return // each call is released by itself
			}
			for _, l := range []load{many, many10k} {
				mustSlice(t, b, c, l)
				if s := mustSlice(t, b, c, l); s.per(float64(s.trips)) >= 0.2 {
					t.Errorf("%v: CALLS DO NOT SHARE ROUND TRIPS: %d for %d decisions, want less than a fifth", l, s.trips, s.decisions)
				}
			}
		})
	}
}

func TestMemory(t *testing.T) {
	t.Parallel()
	b := startBench(t)
	weights, err := b.memory(t.Context()) // fails where keys differ in length
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, w := range weights {
		seen[w.Contender] = true
		if w.KeyBytes != keyLength {
			t.Errorf("%s: keys of %d bytes, want %d", w.Contender, w.KeyBytes, keyLength)
		}
		if w.Bytes <= keyLength {
			t.Errorf("%s: %.1f bytes per key, less than the key has", w.Contender, w.Bytes)
		}
	}
	for _, c := range b.contenders {
		if c.judges != seen[c.name] && c.name != "INCR" {
			t.Errorf("%s: weighed %v, want %v", c.name, seen[c.name], c.judges)
		}
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	config := tiny(t, "-only", "headgate t|bare|redis_rate|empty|TIME", "-profile", t.TempDir())
	report, err := measure(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := report.write(&text); err != nil {
		t.Fatal(err)
	}
	if len(report.Targets) == 0 {
		t.Error("no targets")
	}
	for _, target := range report.Targets {
		if !target.Measured {
			t.Errorf("target %q was not measured", target.Text)
		}
		if !strings.Contains(text.String(), target.Text) {
			t.Errorf("target %q is not printed", target.Text)
		}
	}
	for _, l := range loads {
		if !strings.Contains(text.String(), "\n"+l.String()+"\n") {
			t.Errorf("load %q is not printed", l)
		}
	}
	if _, err := json.Marshal(report); err != nil {
		t.Errorf("JSON: %v", err)
	}
}

func TestOnlyLeavesTargetsOpen(t *testing.T) {
	b, err := newBench(t.Context(), tiny(t, "-only", "INCR"))
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	cells, err := b.race(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range newReport(b.config, "", cells, nil).Targets {
		if target.Measured || target.Passed {
			t.Errorf("target %q: measured %v, passed %v, without headgate", target.Text, target.Measured, target.Passed)
		}
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-rounds", "0"}, {"-slice", "1ms"}, {"-pool", "0"}, {"-only", "("}, {"more"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("parse(%q) = nil, want an error", args)
		}
	}
	if _, err := newBench(t.Context(), tiny(t, "-only", "nobody")); err == nil {
		t.Error("-only nobody: no error")
	}
}

func TestJudge(t *testing.T) {
	tests := map[string]struct {
		target   target
		value    float64
		measured bool
		want     bool
	}{
		"at least, reached":     {target{Bound: 2}, 2, true, true},
		"at least, missed":      {target{Bound: 2}, 1.9, true, false},
		"at most, reached":      {target{Bound: 2, AtMost: true}, 2, true, true},
		"at most, missed":       {target{Bound: 2, AtMost: true}, 2.1, true, false},
		"at most, not measured": {target{Bound: 2, AtMost: true}, 0, false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.target.judge(spread{Median: test.value, Min: 0, Max: 9}, test.measured); got.Passed != test.want {
				t.Errorf("passed %v, want %v", got.Passed, test.want)
			}
		})
	}
}

// TestMissedTarget: the program ends with an error, and so with exit status 1, if a
// target was missed, after it has printed everything. One that was not measured is not
// missed.
func TestMissedTarget(t *testing.T) {
	reached := target{Text: "is fast", Bound: 2}.judge(spread{3, 3, 3}, true)
	short := target{Text: "is small", Bound: 2, AtMost: true}.judge(spread{3, 3, 3}, true)
	open := target{Text: "is left out", Bound: 2}.judge(spread{}, false)
	for name, test := range map[string]struct {
		targets []target
		want    string // "": no error
	}{
		"all reached":      {[]target{reached, open}, ""},
		"one of them not":  {[]target{reached, short, open}, "1 of 3 targets missed: is small"},
		"none is measured": {[]target{open}, ""},
	} {
		for _, asJSON := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, JSON %v", name, asJSON), func(t *testing.T) {
				var out bytes.Buffer
				err := (&report{Targets: test.targets}).publish(&out, asJSON)
				if test.want == "" && err != nil || test.want != "" && (err == nil || err.Error() != test.want) {
					t.Errorf("%v, want %q", err, test.want)
				}
				for _, target := range test.targets {
					if !strings.Contains(out.String(), target.Text) {
						t.Errorf("%q is not printed:\n%s", target.Text, &out)
					}
				}
			})
		}
	}
}

func TestOver(t *testing.T) {
	one := &contender{name: "one"}
	c := &cell{racers: []*contender{one}}
	for _, decisions := range []int64{4, 1, 3, 2} {
		c.rounds = append(c.rounds, map[*contender]sample{one: {decisions: decisions, elapsed: time.Second}})
	}
	got := c.over(func(round map[*contender]sample) float64 { return round[one].perSecond() })
	if want := (spread{Median: 2.5, Min: 1, Max: 4}); got != want {
		t.Errorf("over = %+v, want %+v", got, want)
	}
}
