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
	"sync"
	"time"

	"github.com/yuin/gopher-lua/parse"

	"github.com/headgate/headgate/internal/test/overlay"
)

// text returns the mutant's file with the changed line, or an error if the mutant is wrong.
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
		return "", fmt.Errorf("%s: the mutant changes nothing: %s", m.file, m.before)
	}
	if filepath.Ext(m.file) == ".lua" {
		_, err = parse.Parse(strings.NewReader(changed), m.file)
	} else {
		_, err = parser.ParseFile(token.NewFileSet(), m.file, changed, parser.SkipObjectResolution)
	}
	return changed, err
}

// tester runs tests with changed files.
type tester struct {
	dir   string // for the files that it builds
	whole bool
	limit time.Duration

	mu    sync.Mutex
	built map[string]string // test binaries by folder
}

// unchanged runs the tests of mutants with the unchanged tree: they must pass.
func (t *tester) unchanged(all []mutant, chosen []int) error {
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
		failed, out := t.goTest("", folder, strings.Join(some, "|"), 10*t.limit)
		if failed != "" || out != "" {
			return fmt.Errorf("%s: without a mutant %s fails:\n%s", folder, failed, lastLines(out, 20))
		}
		fmt.Fprintf(os.Stderr, "%s: its tests pass without a mutant, %v\n", folder, time.Since(began).Round(time.Second))
	}
	return nil
}

func (t *tester) test(m mutant) (r result) {
	began := time.Now()
	defer func() { r.took = time.Since(began) }()
	dir, err := os.MkdirTemp(t.dir, "mutant-")
	if err != nil {
		return result{verdict: wrong, by: err.Error()}
	}
	text, err := m.text()
	if err != nil {
		return result{verdict: wrong, by: err.Error()}
	}
	list, err := overlay.Write(dir, map[string]string{m.file: text})
	if err != nil {
		return result{verdict: wrong, by: err.Error()}
	}
	folder, pattern, _ := strings.Cut(m.by, " ")
	var failed, out string
	for range tries {
		if filepath.Ext(m.file) == ".lua" {
			failed, out = t.scriptTest(list, m.file, folder, pattern)
		} else {
			failed, out = t.goTest(list, folder, pattern, t.limit)
		}
		if !tooBusy(failed, out) {
			break
		}
	}
	switch {
	case tooBusy(failed, out):
		return result{verdict: unjudged, by: fmt.Sprintf("the machine was too busy in %d runs of %s", tries, failed)}
	case strings.HasPrefix(failed, "timeout of "):
		if slow, _ := t.goTest("", folder, pattern, t.limit); slow != "" {
			return result{verdict: unjudged, by: fmt.Sprintf("%s, but %s fails within the same time without the mutant", failed, slow)}
		}
		return result{verdict: killed, by: failed}
	case failed != "":
		return result{verdict: killed, by: failed}
	case out != "":
		return result{verdict: wrong, by: "no test failed, but: " + lastLines(out, 1)}
	}
	return result{verdict: survived}
}

// tries is how often a mutant is tested on a machine that is too busy to judge it.
const tries = 3

// tooBusy reports whether tests failed for no other reason than that the machine was busy.
func tooBusy(failed, out string) bool {
	if strings.HasPrefix(failed, "timeout of ") {
		return strings.Contains(out, "this run does not count")
	}
	return gaveUp.MatchString(out)
}

// gaveUp is what tests say that no run could judge; of a run that was repeated, they say something else.
var gaveUp = regexp.MustCompile(`machine too busy(: none of| in each of) `)

// goTest runs tests with a changed Go file, or none. Its results are those of failure.
func (t *tester) goTest(list, folder, pattern string, limit time.Duration) (failed, out string) {
	// Most of the time of a mutant is that of the tools, so vet and debug tables are off.
	args := []string{"test", "-json", "-vet=off", "-ldflags=-s -w"}
	args = append(args, "./"+folder)
	cmd := exec.Command("go", append(args, t.flags(folder, pattern, limit)...)...)
	if list != "" {
		cmd.Env = overlaid(list)
	}
	return failure(cmd)
}

// scriptTest runs tests with a changed script. The test binary is built once for all scripts: it
// reads the text of the script from a file that its environment names.
func (t *tester) scriptTest(list, script, folder, pattern string) (failed, out string) {
	binary, hook, err := t.binary(folder)
	if err != nil {
		return "", err.Error()
	}
	changed := filepath.Join(filepath.Dir(list), "0-"+filepath.Base(script))
	original, err := filepath.Abs(script)
	if err != nil {
		return "", err.Error()
	}
	args := append([]string{"tool", "test2json", "-t", binary, "-test.v=test2json"}, t.flags(folder, pattern, t.limit)...)
	cmd := exec.Command("go", args...)
	cmd.Dir = folder
	cmd.Env = append(overlaid(hook), "HEADGATE_SCRIPT="+original, "HEADGATE_MUTANT="+changed)
	return failure(cmd)
}

// binary returns the test binary of a folder, and the overlay with which it was built.
func (t *tester) binary(folder string) (binary, hook string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	dir := filepath.Join(t.dir, strings.ReplaceAll(folder, "/", "-"))
	binary, hook = filepath.Join(dir, "test"), filepath.Join(dir, "overlay.json")
	if t.built[folder] != "" {
		return binary, hook, nil
	}
	text, err := os.ReadFile("internal/redisscript/link.go")
	if err != nil {
		return "", "", err
	}
	changed, err := overlay.ReplaceLine(string(text), scriptMaker, scriptMaker+"\n\ttext = mutated(text)")
	if err != nil {
		return "", "", fmt.Errorf("internal/redisscript/link.go: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", "", err
	}
	if hook, err = overlay.Write(dir, map[string]string{"internal/redisscript/link.go": changed, "internal/redisscript/mutated.go": mutatedGo}); err != nil {
		return "", "", err
	}
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary, "./"+folder)
	cmd.Env = overlaid(hook)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("build the tests of %s: %w\n%s", folder, err, out)
	}
	if t.built == nil {
		t.built = map[string]string{}
	}
	t.built[folder] = binary
	return binary, hook, nil
}

const (
	scriptMaker = "func code(text string) string {"
	mutatedGo   = `package redisscript

import (
	"os"
	"strings"
)

func mutated(text string) string {
	was, err := os.ReadFile(os.Getenv("HEADGATE_SCRIPT"))
	if err != nil {
		panic(err)
	}
	is, err := os.ReadFile(os.Getenv("HEADGATE_MUTANT"))
	if err != nil {
		panic(err)
	}
	return strings.Replace(text, string(was), string(is), 1)
}
`
)

// overlaid returns an environment in which everything is built with an overlay, including
// programs that tests build.
func overlaid(list string) []string {
	return append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+list)
}

// flags returns the flags of a test binary.
func (t *tester) flags(folder, pattern string, limit time.Duration) []string {
	flags := []string{"-test.count=1", "-test.failfast", "-test.timeout=" + limit.String()}
	if !t.whole {
		flags = append(flags, "-test.run="+pattern)
	}
	if usesRapid(folder) {
		// The same steps in each run, and no files for failures.
		flags = append(flags, "-rapid.seed=1", "-rapid.nofailfile")
	}
	return flags
}

// event is a line of `go test -json`.
type event struct{ Action, Test, Output string }

var (
	timedOut     = regexp.MustCompile(`panic: test timed out after \S+\n\s*running tests:\n((?:\s+Test.*\n)+)`)
	runningTests = regexp.MustCompile(`Test\S*`)
)

// failure runs a command that prints events. It returns the first test that failed and the
// output. If something else failed, the test is "".
func failure(cmd *exec.Cmd) (failed, out string) {
	lines, err := cmd.Output()
	var printed strings.Builder
	for line := range bytes.Lines(lines) {
		var e event
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		printed.WriteString(e.Output)
		// Subtests come before their parents.
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
	if out == "" {
		out = err.Error()
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

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
