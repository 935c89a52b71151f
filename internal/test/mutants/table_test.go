package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTable: every mutant changes one line that its file has once, in a way that can be
// parsed, and its tests are there. Mutants do not rot.
func TestTable(t *testing.T) {
	t.Chdir("../../..")
	all := mutants()
	if len(all) < 80 {
		t.Errorf("%d mutants, want 80 at least", len(all))
	}
	seen := map[string]bool{}
	tests := map[string][]string{}
	for i, m := range all {
		if _, err := m.text(); err != nil {
			t.Errorf("mutant %d: %v", i+1, err)
		}
		if key := fmt.Sprint(m.file, m.before, m.after); seen[key] {
			t.Errorf("mutant %d stands there twice", i+1)
		} else {
			seen[key] = true
		}
		folder, pattern, ok := strings.Cut(m.by, " ")
		if !ok || m.kind == "" || m.breaks == "" {
			t.Errorf("mutant %d has an empty field: %+v", i+1, m)
			continue
		}
		if tests[folder] == nil {
			files, _ := filepath.Glob(filepath.Join(folder, "*_test.go"))
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				tests[folder] = append(tests[folder], testsOf(string(text))...)
			}
		}
		for one := range strings.SplitSeq(pattern, "|") {
			name, _, _ := strings.Cut(one, "/")
			if !names(name, tests[folder]) {
				t.Errorf("mutant %d: %s has no test %s", i+1, folder, one)
			}
		}
	}
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Example|Fuzz)\w*)\(`)

// testsOf returns the names of a file's tests. Functions that are TestMain, or that tests run as processes of theirs, are none.
func testsOf(text string) []string {
	var names []string
	for _, found := range testFunc.FindAllStringSubmatch(text, -1) {
		if name := found[1]; name != "TestMain" && !strings.HasSuffix(name, "Process") {
			names = append(names, name)
		}
	}
	return names
}

// names reports whether a pattern is the name of a test, or that with which several begin.
func names(pattern string, tests []string) bool {
	n := 0
	for _, name := range tests {
		switch {
		case name == strings.TrimSuffix(pattern, "$"):
			return true
		case strings.HasPrefix(name, pattern):
			n++
		}
	}
	return n > 1
}

func TestNames(t *testing.T) {
	const text = `
func TestMain(m *testing.M) {
func TestCrowdProcess(t *testing.T) {
func TestTimedCrowd(t *testing.T) {
func TestLaw(t *testing.T) {
func TestLawOfTwo(t *testing.T) {
func TestSettled(t *testing.T) {
func ExampleRate() {
`
	for pattern, want := range map[string]bool{
		"TestLaw": true, "TestLaw$": true, "TestTimedCrowd": true, "TestLawOf": false, "TestLa": true, "TestLa$": false,
		"TestCrowd": false, "TestSettle": false, "TestMain": false, "ExampleRate": true,
	} {
		if got := names(pattern, testsOf(text)); got != want {
			t.Errorf("%s names tests: %v, want %v", pattern, got, want)
		}
	}
}

// TestTooBusy: a machine that is too busy kills no mutant.
func TestTooBusy(t *testing.T) {
	for name, test := range map[string]struct {
		failed, out string
		want        bool
	}{
		"survived":               {"", "PASS", false},
		"killed":                 {"TestLaw", "3 calls within 20ms", false},
		"killed in a later run":  {"TestLaw", "the machine was too busy, and this run does not count: x\n3 calls within 20ms", false},
		"too busy":               {"TestLaw", "machine too busy: none of 4 runs counts:\nx", true},
		"too busy in each run":   {"TestTimedCrowd", "machine too busy in each of 3 runs; in the last, x", true},
		"killed in a second run": {"TestTimedCrowd", "machine too busy, so once more: x\n3 calls within 20ms", false},
		"hangs":                  {"timeout of TestLaw", "panic: test timed out after 2m0s", false},
		"too busy until the end": {"timeout of TestLaw", "the machine was too busy, and this run does not count: x\npanic: test timed out after 2m0s", true},
	} {
		if got := tooBusy(test.failed, test.out); got != test.want {
			t.Errorf("%s: too busy: %v, want %v", name, got, test.want)
		}
	}
}
