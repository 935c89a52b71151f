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

func scenarios() []scenario {
	return slices.Concat(ofWorkers, ofRedis, ofNetwork, ofPower, ofClocks, ofReceivers, ofFleets, ofResources)
}

// TestFaults runs the scenarios. `make faults` runs all of them, and writes docs/reliability.md:
//
//	go test ./internal/test/faults -all -update -parallel 1
func TestFaults(t *testing.T) {
	redistest.Slow(t)
	var figures sync.Mutex
	for _, sc := range scenarios() {
		if !sc.quick && !*all {
			continue
		}
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			var row, busy string
			for try := range 3 {
				t.Run(fmt.Sprint("try-", try+1), func(t *testing.T) { row, busy = sc.run(t) })
				if busy == "" || t.Failed() {
					break
				}
			}
			if busy != "" && !t.Failed() {
				t.Error(busy)
			}
			if golden.Update() && !t.Failed() && row != "" {
				figures.Lock()
				defer figures.Unlock()
				write(t, sc.fault, row)
			}
		})
	}
}

// TestFiguresOfAllFaults: docs/reliability.md has the figures of each scenario, and of no other.
func TestFiguresOfAllFaults(t *testing.T) {
	var want, got []string
	for _, sc := range scenarios() {
		want = append(want, sc.fault)
	}
	for line := range strings.Lines(strings.TrimPrefix(golden.ReadPart(t, page, part), head)) {
		fault, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		got = append(got, fault)
	}
	if !slices.Equal(got, want) {
		t.Errorf("docs/reliability.md has these faults:\n%s\nThe scenarios are:\n%s\nmake faults writes it", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Where the figures are.
const page, part = "../../../docs/reliability.md", "faults"

const head = "| Fault | Jobs | Lost | Called more than once | Flows again after | Calls under way again from | Limit used meanwhile | Closest calls | Machine late |\n|---|---|---|---|---|---|---|---|---|\n"

// write replaces the row of a scenario, keeps those of others, and removes those that are of none.
func write(t *testing.T, fault, row string) {
	t.Helper()
	rows := map[string]string{}
	for line := range strings.Lines(golden.ReadPart(t, page, part)) {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		rows[first] = line
	}
	rows[fault] = row
	var text strings.Builder
	text.WriteString(head)
	for _, sc := range scenarios() {
		text.WriteString(rows[sc.fault])
	}
	golden.WritePart(t, page, part, text.String())
}
