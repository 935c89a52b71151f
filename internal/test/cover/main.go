// Command cover reports which lines of the Lua scripts the tests cover.
//
// It runs the tests with instrumented copies of the scripts, which `go test -overlay` embeds
// instead of the originals. Each statement records that it ran in the table KEYS, which is local
// to each run of a script. At its end, even after an error, a script writes the records to the log
// of its redis-server. Keys, commands and replies are the same as with the originals. Hashes,
// lengths and durations differ, so tests that assert these may fail here and are reported, and those
// that measure times are left out: they would only be repeated.
//
// A line is covered if every statement that begins on it ran. Tests on the imitation of Redis do
// not count, because it has no log.
//
// Usage: cover [package ...]. The default is all packages whose tests can run scripts. The exit
// status is 1 if a line is not covered.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/internal/test/overlay"
)

// script is one Lua file.
type script struct {
	path  string
	text  []string
	lines map[int][]int // by line number: the marks of the statements that begin there
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cover:", err)
		os.Exit(1)
	}
}

func run(packages []string) error {
	dir, err := os.MkdirTemp("", "headgate-cover-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// An interrupt also reaches the tests; the rest is still reported.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)

	scripts, texts, err := instrumented()
	if err != nil {
		return err
	}
	logs := filepath.Join(dir, "logs")
	if err := errors.Join(os.Mkdir(logs, 0o700), hooks(texts, logs)); err != nil {
		return err
	}
	file, err := overlay.Write(dir, texts)
	if err != nil {
		return err
	}
	if len(packages) == 0 {
		if packages, err = withScripts(); err != nil {
			return err
		}
	}
	ran := map[int]bool{}
	for _, name := range packages {
		if len(interrupted) > 0 {
			break
		}
		if err := test(name, file); err != nil {
			return err
		}
		if err := collect(logs, ran); err != nil {
			return err
		}
	}
	return report(scripts, ran)
}

// instrumented reads the scripts and returns their instrumented texts by path.
func instrumented() ([]script, map[string]string, error) {
	paths, err := scriptPaths()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: run it in the root of the module", err)
	}
	var scripts []script
	texts, marks := map[string]string{}, 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		s := script{path, strings.Split(string(text), "\n"), map[int][]int{}}
		texts[path], err = instrument(path, string(text), func(line int) string {
			marks++
			s.lines[line] = append(s.lines[line], marks)
			return fmt.Sprintf("KEYS[-%d] = 1", marks)
		})
		if err != nil {
			return nil, nil, err
		}
		scripts = append(scripts, s)
	}
	return scripts, texts, nil
}

// scriptPaths returns the paths of the scripts that programs load.
func scriptPaths() ([]string, error) {
	var paths []string
	for _, folder := range []string{"queue", "throttle", "internal/limitlua"} {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && entry.Name() == "testdata" {
				return fs.SkipDir
			}
			if filepath.Ext(path) == ".lua" {
				paths = append(paths, path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// hooks adds the code that makes scripts write their records, and that keeps the logs of all
// Redis servers in one folder.
func hooks(texts map[string]string, logs string) error {
	for _, change := range []struct{ path, before, after string }{
		{"internal/redisscript/script.go", "text := text()", "text := covered(text())"},
		{
			"internal/redisproc/redisproc.go", `log, err := os.Create(filepath.Join(p.config.Dir, "redis-server.log"))`,
			fmt.Sprintf("log, err := os.CreateTemp(filepath.Clean(%q), \"*.log\")", logs),
		},
	} {
		text, err := os.ReadFile(change.path)
		if err != nil {
			return err
		}
		if texts[change.path], err = overlay.ReplaceLine(string(text), change.before, change.after); err != nil {
			return fmt.Errorf("%s: %w", change.path, err)
		}
	}
	texts["internal/redisscript/covered.go"] = coveredGo
	return nil
}

// A script that begins with a flag was instrumented before the flag was added.
const coveredGo = `package redisscript

import "strings"

func covered(text string) string {
	if strings.HasPrefix(text, "#!") {
		return text
	}
	return "local function covered()\n" + text + "\nend\n" + ` + "`" + `
local answer, ran = {pcall(covered)}, {}
for mark in pairs(KEYS) do if mark < 0 then ran[#ran + 1] = -mark end end
redis.log(redis.LOG_WARNING, 'covered ' .. table.concat(ran, ' '))
if not answer[1] then error(answer[2], 0) end
return answer[2]
` + "`" + `
}
`

// withScripts lists the packages whose tests can run scripts.
func withScripts() ([]string, error) {
	out, err := exec.Command("go", "list", "-test", "-f", `{{if .ForTest}}{{.ForTest}} {{join .Deps " "}} {{end}}`, "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var packages []string
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if len(words) > 0 && slices.ContainsFunc(words[1:], func(name string) bool {
			name, _, _ = strings.Cut(name, " ")
			return strings.HasSuffix(name, "headgate/internal/redisscript")
		}) {
			packages = append(packages, words[0])
		}
	}
	slices.Sort(packages)
	return slices.Compact(packages), nil
}

// test runs the tests of a package. Failing tests are not an error of this program.
func test(name, overlay string) error {
	began := time.Now()
	cmd := exec.Command("go", "test", "-count", "1", "-timeout", "30m", "-skip", "^TestTimed", name)
	// In the environment, so that it also applies to programs that tests build.
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay)
	out, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		return err
	}
	if bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")) {
		return fmt.Errorf("%s: %s", name, out)
	}
	result := "ok"
	if err != nil {
		result = "failed, with the scripts instrumented:"
		for line := range strings.Lines(string(out)) {
			if failed, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
				result += " " + strings.Fields(failed)[0]
			}
		}
	}
	fmt.Printf("%s, %s: %s\n", name, time.Since(began).Round(time.Second), result)
	return nil
}

// collect reads the marks from the logs and removes the logs.
func collect(logs string, ran map[int]bool) error {
	files, err := filepath.Glob(filepath.Join(logs, "*.log"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := readLog(file, ran); err != nil {
			return err
		}
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return nil
}

func readLog(file string, ran map[int]bool) error {
	log, err := os.Open(file)
	if err != nil {
		return err
	}
	defer log.Close()
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		_, marks, _ := strings.Cut(lines.Text(), " covered ")
		for mark := range strings.FieldsSeq(marks) {
			if n, err := strconv.Atoi(mark); err == nil {
				ran[n] = true
			}
		}
	}
	return lines.Err()
}

// report prints the table and the lines that are not covered.
func report(scripts []script, ran map[int]bool) error {
	var uncovered []string
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, lines, covered int) {
		fmt.Fprintf(table, "%s\t%d\t%d\t%.1f %%\t\n", name, lines, covered, 100*float64(covered)/float64(max(lines, 1)))
	}
	fmt.Fprintln(table, "script\tlines\tcovered\t\t")
	all, allCovered := 0, 0
	for _, s := range scripts {
		covered := 0
		for line := range len(s.text) {
			marks, ok := s.lines[line+1]
			switch {
			case !ok:
			case !slices.ContainsFunc(marks, func(mark int) bool { return !ran[mark] }):
				covered++
			default:
				uncovered = append(uncovered, fmt.Sprintf("%s:%d: %s", s.path, line+1, strings.TrimSpace(s.text[line])))
			}
		}
		row(s.path, len(s.lines), covered)
		all, allCovered = all+len(s.lines), allCovered+covered
	}
	row("all", all, allCovered)
	if err := table.Flush(); err != nil {
		return err
	}
	if len(uncovered) == 0 {
		return nil
	}
	return fmt.Errorf("%d lines are not covered: add tests, or remove dead lines\n%s", len(uncovered), strings.Join(uncovered, "\n"))
}
