package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
)

// report is a whole run.
type report struct {
	Redis   string   `json:"redis"`
	Go      string   `json:"go"`
	CPUs    int      `json:"cpus"`
	Rounds  int      `json:"rounds"`
	Slice   string   `json:"slice"`
	Pool    int      `json:"pool"`
	Loads   []table  `json:"loads"`
	Memory  []weight `json:"memory"`
	Targets []target `json:"targets"`
}

// table is one load.
type table struct {
	load
	Rows []row `json:"contenders"`
}

// row is one contender under it. All but the rate are for each decision.
type row struct {
	Contender   string  `json:"contender"`
	PerSecond   spread  `json:"decisions_per_second"`
	OfRedisRate *spread `json:"of_redis_rate,omitempty"` // nil: redis_rate was not measured
	OfEmpty     *spread `json:"of_empty_script,omitempty"`
	RedisCPU    spread  `json:"redis_cpu_us"`
	Scripts     spread  `json:"script_us"`
	Trips       spread  `json:"round_trips"`
	Allocs      spread  `json:"allocs"`
	Admitted    float64 `json:"admitted"` // part of the decisions
	Failed      float64 `json:"failed"`   // part of the calls
	Failure     string  `json:"failure,omitempty"`
}

func newReport(config config, version string, cells []*cell, memory []weight) *report {
	r := &report{
		Redis: version, Go: runtime.Version(), CPUs: runtime.NumCPU(),
		Rounds: config.rounds, Slice: config.slice.String(), Pool: config.pool,
		Memory: memory, Targets: targets(cells, memory),
	}
	for _, c := range cells {
		t := table{load: c.load}
		for _, contender := range c.racers {
			t.Rows = append(t.Rows, c.row(contender))
		}
		r.Loads = append(r.Loads, t)
	}
	return r
}

func (c *cell) row(of *contender) row {
	each := func(figure func(s sample) float64) spread {
		return c.over(func(round map[*contender]sample) float64 { return figure(round[of]) })
	}
	var all sample
	for _, round := range c.rounds {
		all = all.plus(round[of])
	}
	r := row{
		Contender: of.name,
		PerSecond: each(sample.perSecond),
		RedisCPU:  each(func(s sample) float64 { return s.per(micros(s.redisCPU)) }),
		Scripts:   each(func(s sample) float64 { return s.per(micros(s.scripts)) }),
		Trips:     each(func(s sample) float64 { return s.per(float64(s.trips)) }),
		Allocs:    each(func(s sample) float64 { return s.per(float64(s.allocs)) }),
		Admitted:  all.per(float64(all.admitted)),
	}
	if calls := all.decisions + all.failed; calls > 0 {
		r.Failed = float64(all.failed) / float64(calls)
	}
	if all.failure != nil {
		r.Failure = all.failure.Error()
	}
	if ratio, ok := c.ratio(of.name, redisRate); ok {
		r.OfRedisRate = &ratio
	}
	if ratio, ok := c.ratio(of.name, emptyScript); ok {
		r.OfEmpty = &ratio
	}
	return r
}

// publish prints the report, and is an error if a target was missed.
func (r *report) publish(out io.Writer, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(r); err != nil {
			return err
		}
	} else if err := r.write(out); err != nil {
		return err
	}
	return missed(r.Targets)
}

func (r *report) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "Redis %s, %s, %d CPUs for both; %d rounds of %v; pools of %d. Medians over the rounds; ratios are taken within a round.\n",
		r.Redis, r.Go, r.CPUs, r.Rounds, r.Slice, r.Pool)
	for _, t := range r.Loads {
		fmt.Fprintf(w, "\n%v\n", t.load)
		fmt.Fprintln(w, "contender\tdecisions/s\tof redis_rate (min..max)\tof empty script\tRedis CPU µs\tscript µs\tround trips\tallocs\tadmitted\tfailed\t")
		for _, row := range t.Rows {
			ratio, ofEmpty := "-", "-"
			if row.OfRedisRate != nil {
				ratio = row.OfRedisRate.String()
			}
			if row.OfEmpty != nil {
				ofEmpty = fmt.Sprintf("%.3f", row.OfEmpty.Median)
			}
			fmt.Fprintf(w, "%s\t%.0f\t%s\t%s\t%.1f\t%.1f\t%.3f\t%.1f\t%.1f%%\t%.1f%%\t\n", row.Contender, row.PerSecond.Median, ratio, ofEmpty,
				row.RedisCPU.Median, row.Scripts.Median, row.Trips.Median, row.Allocs.Median, 100*row.Admitted, 100*row.Failed)
		}
	}
	fmt.Fprintf(w, "\nmemory of a fresh key after one permit\n")
	fmt.Fprintln(w, "contender\tbytes per key\tkey length\t")
	for _, m := range r.Memory {
		fmt.Fprintf(w, "%s\t%.1f\t%d\t\n", m.Contender, m.Bytes, m.KeyBytes)
	}
	fmt.Fprintf(w, "\ntargets\n")
	fmt.Fprintln(w, "\twanted\tmeasured (min..max)\ttarget\t")
	for _, t := range r.Targets {
		verdict, value, sign := "missed", t.Value.String(), "≥"
		if t.Passed {
			verdict = "pass"
		}
		if !t.Measured {
			verdict, value = "not measured", "-"
		}
		if t.AtMost {
			sign = "≤"
		}
		fmt.Fprintf(w, "%s\t%s %v\t%s\t%s\t\n", verdict, sign, t.Bound, value, t.Text)
	}
	return w.Flush()
}

func (s spread) String() string {
	if s.Min == s.Max {
		return fmt.Sprintf("%.4g", s.Median)
	}
	return fmt.Sprintf("%.3f (%.3f..%.3f)", s.Median, s.Min, s.Max)
}
