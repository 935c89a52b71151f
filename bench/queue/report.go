package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
)

// head says what the tables were made on.
func (b *bench) head() {
	fmt.Fprintf(b.out, "Redis %s, %s, %d CPUs for all; rounds: %d; scale: %v. Medians over the rounds, and in brackets the extremes; ratios are taken within a round.\n",
		b.server.Version(), runtime.Version(), runtime.NumCPU(), b.config.rounds, b.config.scale)
}

// writeTable prints a workload in Markdown.
func writeTable(out io.Writer, w workload, rows []row, verdicts []verdict) {
	fmt.Fprintf(out, "\n## %s\n\n%s\n\n", w.name, w.about)
	titles := []string{"contender"}
	if w.base != "" {
		titles = append(titles, "× "+w.base)
	}
	for _, f := range w.columns {
		titles = append(titles, string(f))
	}
	line(out, titles)
	line(out, strings.Split(strings.Repeat("---,", len(titles)-1)+"---", ","))
	for _, r := range rows {
		cells := []string{r.name}
		if w.base != "" {
			cells = append(cells, atLeast(r.name, perSecond, 0).times(w.base).measured(rows).String())
		}
		for _, f := range w.columns {
			cells = append(cells, r.of(f).String())
		}
		line(out, cells)
	}
	if len(verdicts) == 0 {
		return
	}
	fmt.Fprintln(out)
	line(out, []string{"target", "measured", ""})
	line(out, []string{"---", "---", "---"})
	for _, v := range verdicts {
		result := "missed"
		if v.passed {
			result = "met"
		}
		line(out, []string{v.target.String(), v.value.String(), result})
	}
}

func line(out io.Writer, cells []string) {
	fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
}
