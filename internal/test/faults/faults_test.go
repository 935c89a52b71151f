package faults

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/stage"
)

// TestFaults runs the scenarios. `make faults` runs all of them, and writes docs/reliability.md:
//
//	go test ./internal/test/faults -all -update -parallel 3
func TestFaults(t *testing.T) {
	redistest.Slow(t)
	scenarios := slices.Concat(ofWorkers, ofRedis, ofNetwork, ofPower, ofClocks, ofReceivers, ofFleets, ofResources)
	var mu sync.Mutex
	rows := map[string]string{}
	t.Run("of", func(t *testing.T) { // returns when all of them have ended
		for _, sc := range scenarios {
			if !sc.quick && !*all {
				continue
			}
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				var row, busy string
				for try := range 3 {
					t.Run(fmt.Sprint("try-", try+1), func(t *testing.T) { row, busy = sc.run(t) })
					if busy == "" {
						break
					}
				}
				if busy != "" {
					t.Error(busy)
				}
				mu.Lock()
				defer mu.Unlock()
				if !t.Failed() {
					rows[sc.fault] = row
				}
			})
		}
	})
	if *update {
		write(t, scenarios, rows)
	}
}

const head = "| Fault | Jobs | Lost | Called more than once | Flows again after | Calls under way again from | Limit used meanwhile | Closest calls |\n|---|---|---|---|---|---|---|---|\n"

// write replaces the rows of the scenarios that ran, and keeps those of others.
func write(t *testing.T, scenarios []scenario, rows map[string]string) {
	t.Helper()
	const page, name = "reliability.md", "faults"
	for line := range strings.Lines(stage.Figures(t, page, name)) {
		cells := strings.Split(line, " | ")
		if fault := strings.TrimPrefix(cells[0], "| "); rows[fault] == "" && len(cells) > 5 {
			rows[fault] = line
		}
	}
	text := head
	for _, sc := range scenarios {
		text += rows[sc.fault]
	}
	stage.WriteFigures(t, page, name, text)
}
