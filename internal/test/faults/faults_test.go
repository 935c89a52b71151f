package faults

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/test/golden"
	"github.com/headgate/headgate/internal/test/redistest"
)

// TestFaults runs the scenarios. `make faults` runs all of them, and writes docs/reliability.md:
//
//	go test ./internal/test/faults -all -update -parallel 1
func TestFaults(t *testing.T) {
	redistest.Slow(t)
	scenarios := slices.Concat(ofWorkers, ofRedis, ofNetwork, ofPower, ofClocks, ofReceivers, ofFleets, ofResources)
	var figures sync.Mutex
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
			if golden.Update() && !t.Failed() && row != "" {
				figures.Lock()
				defer figures.Unlock()
				write(t, scenarios, sc.fault, row)
			}
		})
	}
}

const head = "| Fault | Jobs | Lost | Called more than once | Flows again after | Calls under way again from | Limit used meanwhile | Closest calls | Machine late |\n|---|---|---|---|---|---|---|---|---|\n"

// write replaces the row of a scenario, keeps those of others, and removes those that are of none.
func write(t *testing.T, scenarios []scenario, fault, row string) {
	t.Helper()
	const page, name = "../../../docs/reliability.md", "faults"
	rows := map[string]string{}
	for line := range strings.Lines(golden.ReadPart(t, page, name)) {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		rows[first] = line
	}
	rows[fault] = row
	var text strings.Builder
	text.WriteString(head)
	for _, sc := range scenarios {
		text.WriteString(rows[sc.fault])
	}
	golden.WritePart(t, page, name, text.String())
}
