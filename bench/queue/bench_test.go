package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// mainVariable makes a process of the test binary the command itself.
const mainVariable = "HEADGATE_BENCH_MAIN"

func TestMain(m *testing.M) {
	err := work(context.Background(), os.Stdin, os.Stdout)
	switch {
	case err == nil:
		return
	case !errors.Is(err, errNoWorker):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case os.Getenv(mainVariable) != "":
		main()
		return
	}
	_ = flag.Set("test.parallel", "6") // tiny workloads mostly wait
	os.Exit(m.Run())
}

// TestWorkloads runs each workload once, tiny: what it says about speed is nothing. All
// figures that its table and its targets want must be there.
func TestWorkloads(t *testing.T) {
	for _, w := range workloads() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			b, err := newBench(t.Context(), config{rounds: 1, scale: 0.0005}, &out)
			if err != nil {
				t.Fatal(err)
			}
			defer b.close()
			rows, err := b.measure(t.Context(), w)
			if err != nil {
				t.Fatal(err)
			}
			if len(rows) != len(w.entries) {
				t.Fatalf("%d rows of %d contenders", len(rows), len(w.entries))
			}
			seen := map[figure]bool{}
			for i, r := range rows {
				if r.name != w.entries[i].name || len(r.samples) != 1 {
					t.Errorf("row %d is %q with %d samples, want %q with one", i, r.name, len(r.samples), w.entries[i].name)
				}
				for f := range r.samples[0] {
					seen[f] = true
				}
			}
			for _, f := range w.columns {
				if !seen[f] {
					t.Errorf("no contender has %q", f)
				}
			}
			for _, v := range judge(w, rows) {
				if math.IsNaN(v.value.median) {
					t.Errorf("%v was not measured", v.target)
				}
			}
			writeTable(&out, w, rows, nil)
			if !strings.Contains(out.String(), "\n## "+w.name+"\n") {
				t.Errorf("no heading in\n%s", out.String())
			}
		})
	}
}

// TestCommandsOfAsynq knows what plain asynq costs: an enqueue is a script of three
// commands, and the end of a task another.
func TestCommandsOfAsynq(t *testing.T) {
	b, err := newBench(t.Context(), config{rounds: 1, scale: 0.01}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	s, err := b.drain(t.Context(), plainAsynq, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s[single] < 4 || s[single] > 4.2 || s[scripts] < 2 || s[scripts] > 2.1 || s[commands] < 14 || s[commands] > 15 {
		t.Errorf("%.2f commands to enqueue, then %.2f with %.2f scripts; want 4, 14 and 2", s[single], s[commands], s[scripts])
	}
	if s[workerCPU] <= 0 || s[redisCPU] <= 0 || s[netBytes] < 200 || s[perSecond] <= 0 {
		t.Errorf("sample %v: a figure is missing", s)
	}
}

func TestOver(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   spread
	}{
		{[]float64{3}, spread{3, 3, 3}},
		{[]float64{9, 1, 5}, spread{5, 1, 9}},
		{[]float64{4, 1, 3, 2}, spread{2.5, 1, 4}},
	} {
		before := fmt.Sprint(test.values)
		if got := over(test.values); got != test.want {
			t.Errorf("over(%v) = %v, want %v", test.values, got, test.want)
		}
		if fmt.Sprint(test.values) != before {
			t.Errorf("over changed %v to %v", before, test.values)
		}
	}
	if got := over(nil); !math.IsNaN(got.median) || got.String() != "-" {
		t.Errorf("of no values: %v", got)
	}
}

func TestPercentile(t *testing.T) {
	var times []time.Duration
	for i := range 200 {
		times = append(times, time.Duration(200-i)*time.Millisecond)
	}
	for p, want := range map[float64]float64{0.5: 100, 0.99: 198, 1: 200, 0.001: 1} {
		if got := percentile(times, p); got != want {
			t.Errorf("percentile %v of 1 to 200 ms = %v, want %v", p, got, want)
		}
	}
	if got := percentile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("percentile of nothing = %v", got)
	}
}

func TestJudge(t *testing.T) {
	rows := []row{
		{"ours", []sample{{used: 10, excess: 8}, {used: 30, excess: 2}, {used: 21, excess: 9}}},
		{"theirs", []sample{{used: 10, excess: 1}, {used: 10, excess: 1}, {used: 7, excess: 4}}},
	}
	for _, test := range []struct {
		target target
		value  float64
		passed bool
	}{
		{atLeast("ours", used, 21), 21, true},
		{atLeast("ours", used, 21.1), 21, false},
		{atMost("ours", used, 21), 21, true},
		{atMost("ours", used, 20.9), 21, false},
		{atLeast("ours", used, 3).times("theirs"), 3, true}, // in each round by itself: 1, 3, 3
		{atLeast("ours", used, 3.1).times("theirs"), 3, false},
		{atMost("ours", excess, 5).than("theirs"), 5, true}, // 7, 1, 5
		{atMost("ours", excess, 4.9).than("theirs"), 5, false},
		{atMost("nobody", excess, 5), math.NaN(), false},
		{atLeast("nobody", excess, 0), math.NaN(), false},
		{atMost("ours", excess, 5).times("nobody"), math.NaN(), false},
		{atMost("ours", excess, 5).than("nobody"), math.NaN(), false},
		{atMost("ours", p50, 5), math.NaN(), false},
	} {
		got := judge(workload{name: "w", targets: []target{test.target}}, rows)[0]
		if same := got.value.median == test.value || math.IsNaN(got.value.median) && math.IsNaN(test.value); !same || got.passed != test.passed {
			t.Errorf("%v: %v, passed %v; want %v, %v", test.target, got.value, got.passed, test.value, test.passed)
		}
	}
}

func TestMissed(t *testing.T) {
	v := verdict{target: atLeast("ours", used, 0.97), workload: "w", value: spread{0.9, 0.8, 0.95}, passed: true}
	if err := missed([]verdict{v}); err != nil {
		t.Errorf("with all met: %v", err)
	}
	v.passed = false
	const want = "target missed: w: ours: use ≥ 0.97, measured 0.900 (0.800..0.950)"
	if err := missed([]verdict{v}); err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
}

func TestTable(t *testing.T) {
	w := workload{
		name: "w", about: "some jobs", base: "theirs", columns: []figure{perSecond, held50},
		targets: []target{atLeast("ours", perSecond, 2).times("theirs"), atMost("ours", held50, 5)},
	}
	rows := []row{
		{"theirs", []sample{{perSecond: 1000}, {perSecond: 1000}, {perSecond: 2000}}},
		{"ours", []sample{{perSecond: 1500, held50: 6}, {perSecond: 2500, held50: 6}, {perSecond: 4000, held50: 6}}},
	}
	const want = `
## w

some jobs

| contender | × theirs | jobs/s | held p50 ms |
| --- | --- | --- | --- |
| theirs | 1.000 | 1000 (1000..2000) | - |
| ours | 2.000 (1.500..2.500) | 2500 (1500..4000) | 6.000 |

| target | measured |  |
| --- | --- | --- |
| ours: jobs/s ≥ 2 × theirs | 2.000 (1.500..2.500) | met |
| ours: held p50 ms ≤ 5 | 6.000 | missed |
`
	var out bytes.Buffer
	writeTable(&out, w, rows, judge(w, rows))
	if out.String() != want {
		t.Errorf("got%s\nwant%s", out.String(), want)
	}
}

func TestAccuracy(t *testing.T) {
	began := time.Now()
	at := func(ms ...int) (times []time.Time) {
		for _, m := range ms {
			times = append(times, began.Add(time.Duration(m)*time.Millisecond))
		}
		return times
	}
	one := traffic{tenants: 1, jobs: 5, limits: []limit{tenantLimit(10)}}
	two := traffic{tenants: 2, jobs: 6, limits: []limit{tenantLimit(10)}}
	shared := traffic{tenants: 2, jobs: 5, limits: []limit{sharedRate(10), tenantLimit(10)}}
	for name, test := range map[string]struct {
		traffic
		calls map[string][]time.Time
		ended int
		want  sample
	}{
		"exact":           {one, map[string][]time.Time{"a": at(0, 100, 200, 300, 400)}, 9000, sample{used: 1, excess: 0, called: 1}},
		"half as fast":    {one, map[string][]time.Time{"a": at(0, 200, 400, 600, 800)}, 9000, sample{used: 0.5, excess: 0, called: 1}},
		"one early":       {one, map[string][]time.Time{"a": at(0, 100, 190, 300, 400)}, 9000, sample{used: 1, excess: 10, called: 1}},
		"not all":         {one, map[string][]time.Time{"a": at(0, 100, 200)}, 400, sample{used: 0.5, excess: 0, called: 0.6}},
		"two of them":     {two, map[string][]time.Time{"a": at(0, 100, 200), "b": at(0, 100, 200)}, 9000, sample{used: 1, excess: 0, called: 1}},
		"one is late":     {two, map[string][]time.Time{"a": at(0, 100, 200), "b": at(200, 300, 400)}, 9000, sample{used: 0.5, excess: 0, called: 1}},
		"shared":          {shared, map[string][]time.Time{"a": at(0, 200, 400), "b": at(100, 300)}, 9000, sample{used: 1, excess: 0, called: 1}},
		"shared, at once": {shared, map[string][]time.Time{"a": at(0, 200, 400), "b": at(100, 400)}, 9000, sample{used: 1, excess: 100, called: 1}},
	} {
		got := test.accuracy(test.calls, began.Add(time.Duration(test.ended)*time.Millisecond))
		for f, want := range test.want {
			if math.Abs(got[f]-want) > 1e-6 {
				t.Errorf("%s: %s is %v, want %v", name, f, got[f], want)
			}
		}
	}
}

// TestPace: the floor is exact where timers are.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newCallLog(task{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		err := pace(ctx, task{Tenants: 20, Jobs: 501, Limits: []limit{sharedRate(500), tenantLimit(5)}}, log, func() {})
		if took := log.Last.Sub(log.First); err != nil || log.Calls != 501 || !log.First.Equal(began) || took != 5*time.Second {
			t.Errorf("%d calls within %v, %v; want 501 within 5 s, the first at once", log.Calls, took, err)
		}
	})
}

func TestParse(t *testing.T) {
	c, err := parse([]string{"-workload", "fleet,drain-2", "-rounds", "2", "-scale", "0.5"}, nil)
	if err != nil || c.rounds != 2 || c.scale != 0.5 || len(c.workloads) != 2 || c.workloads[0].name != "fleet" || c.workloads[1].name != "drain-2" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err = parse(nil, nil); err != nil || c.rounds != 5 || c.scale != 1 || len(c.workloads) != len(workloads()) {
		t.Errorf("without flags: %+v, %v", c, err)
	}
	for args, want := range map[string]string{
		"-rounds 0":      "-rounds: 0 is less than 1",
		"-scale 0":       "-scale: 0 is not above 0 and up to 1",
		"-scale 1.5":     "-scale: 1.5 is not above 0 and up to 1",
		"-scale NaN":     "-scale: NaN is not above 0 and up to 1",
		"-workload drai": `-workload: "drai" is no workload: see -help`,
		"drain-1":        `unexpected argument "drain-1": flags begin with -`,
	} {
		if _, err := parse(strings.Fields(args), nil); err == nil || err.Error() != want {
			t.Errorf("%s: %v; want %s", args, err, want)
		}
	}
}

// TestExit runs the command. One job of each tenant takes no time, so no limit is used.
func TestExit(t *testing.T) {
	for args, want := range map[string]struct {
		code int
		says string // on stdout or stderr
	}{
		"-help":          {0, "\n  drain-1  "},
		"-workload none": {1, `queue: -workload: "none" is no workload`},
		"-workload 200-tenants -rounds 1 -scale 0.0005": {1, "target missed: 200-tenants: headgate: use ≥ 0.9709, measured 0"},
	} {
		cmd := exec.Command(os.Args[0], strings.Fields(args)...)
		cmd.Env = append(os.Environ(), mainVariable+"=1")
		said, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want.code || !strings.Contains(string(said), want.says) {
			t.Errorf("%s: exit code %d (%v), want %d and %q in\n%s", args, code, err, want.code, want.says, said)
		}
	}
}
