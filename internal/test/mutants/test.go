package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/yuin/gopher-lua/parse"

	"github.com/headgate/headgate/internal/test/overlay"
)

// text is the mutant's file with the changed line. The error says what is wrong with
// the mutant.
func (m mutant) text() (string, error) {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	changed, err := overlay.ReplaceLine(string(text), m.before, m.after)
	if err != nil {
		return "", fmt.Errorf("%s: %w", m.file, err)
	}
	if m.before == m.after {
		return "", fmt.Errorf("%s: it changes nothing: %s", m.file, m.before)
	}
	if filepath.Ext(m.file) == ".lua" {
		_, err = parse.Parse(strings.NewReader(changed), m.file)
	} else {
		_, err = parser.ParseFile(token.NewFileSet(), m.file, changed, parser.SkipObjectResolution)
	}
	return changed, err
}

// tester runs tests over changed files.
type tester struct {
	whole bool
	limit time.Duration
}

// unchanged runs the tests of mutants over the tree as it is: they have to pass.
func (t tester) unchanged(all []mutant, chosen []int) error {
	patterns := map[string][]string{}
	for _, i := range chosen {
		folder, pattern, _ := strings.Cut(all[i].by, " ")
		for one := range strings.SplitSeq(pattern, "|") {
			if !slices.Contains(patterns[folder], one) {
				patterns[folder] = append(patterns[folder], one)
			}
		}
	}
	for folder, some := range patterns {
		began := time.Now()
		failed, out := t.run("", folder, strings.Join(some, "|"), 10*t.limit)
		if failed != "" || out != "" {
			return fmt.Errorf("%s: without a mutant %s fails:\n%s", folder, failed, out)
		}
		fmt.Fprintf(os.Stderr, "%s: its tests pass without a mutant, %v\n", folder, time.Since(began).Round(time.Second))
	}
	return nil
}

func (t tester) test(m mutant) (r result) {
	began := time.Now()
	defer func() { r.took = time.Since(began) }()
	dir, err := os.MkdirTemp("", "headgate-mutant-")
	if err != nil {
		return result{verdict: wrong, by: err.Error()}
	}
	defer os.RemoveAll(dir)
	text, err := m.text()
	if err != nil {
		return result{verdict: wrong, by: err.Error()}
	}
	file, err := overlay.Write(dir, map[string]string{m.file: text})
	if err != nil {
		return result{verdict: wrong, by: err.Error()}
	}
	folder, pattern, _ := strings.Cut(m.by, " ")
	failed, out := t.run(file, folder, pattern, t.limit)
	switch {
	case failed != "":
		return result{verdict: killed, by: failed}
	case out != "":
		return result{verdict: wrong, by: "no test failed, but: " + lastLine(out)}
	}
	return result{verdict: survived}
}

// event is a line of `go test -json`.
type event struct{ Action, Test, Output string }

var (
	timedOut     = regexp.MustCompile(`panic: test timed out after \S+\n\s*running tests:\n((?:\s+Test.*\n)+)`)
	runningTests = regexp.MustCompile(`Test\S*`)
)

// run runs tests, and returns the first one that failed, with what was printed. Where
// none failed and something else did, the first is "".
func (t tester) run(overlay, folder, pattern string, limit time.Duration) (failed, out string) {
	// Most of a mutant's time is that of the tools: no vet, and no tables for debuggers.
	args := []string{"test", "-json", "-vet=off", "-ldflags=-s -w", "-count", "1", "-failfast", "-timeout", limit.String()}
	if !t.whole {
		args = append(args, "-run", pattern)
	}
	args = append(args, "./"+folder)
	if usesRapid(folder) {
		// The same steps at each run, and no files of those that fail.
		args = append(args, "-rapid.seed", "1", "-rapid.nofailfile")
	}
	cmd := exec.Command("go", args...)
	if overlay != "" {
		cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay) // also for programs that tests build
	}
	lines, err := cmd.Output()
	var printed strings.Builder
	for line := range bytes.Lines(lines) {
		var e event
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		printed.WriteString(e.Output)
		// The inner test comes before the outer one.
		if e.Action == "fail" && e.Test != "" && failed == "" {
			failed = e.Test
		}
	}
	out = printed.String()
	if m := timedOut.FindStringSubmatch(out); m != nil {
		return "timeout of " + strings.Join(runningTests.FindAllString(m[1], -1), ", "), out
	}
	if err == nil {
		return "", ""
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && out == "" {
		out = string(exit.Stderr)
	}
	if strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]") {
		return "", out
	}
	return failed, out
}

func usesRapid(folder string) bool {
	files, _ := filepath.Glob(filepath.Join(folder, "*_test.go"))
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && bytes.Contains(text, []byte(`"pgregory.net/rapid"`))
	})
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
