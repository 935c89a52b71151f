// Package limitsfile reads the file that says how fast each queue may go.
//
// Reading is strict: an unknown field is a mistake, not a comment, and all
// mistakes are reported at once, each with its line and what was probably
// meant. A file with one mistake changes nothing.
package limitsfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/queue"
)

// mostBytes bounds a file: some 100,000 tenants.
const mostBytes = 10 << 20

// Problem is one mistake in a file.
type Problem struct {
	Line   int    // 0 when it concerns the whole file
	Path   string // such as queues.email.limits[1].rate; "" for the whole file
	Reason string
}

func (p Problem) String() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", p.Line)
	}
	if p.Path != "" {
		b.WriteString(oneLine(p.Path) + ": ")
	}
	return b.String() + p.Reason
}

// oneLine makes a path, which holds names from the file, fit for a line of a log.
func oneLine(path string) string {
	const most = 300
	if len(path) > most {
		path = strings.ToValidUTF8(path[:most], "") + "…"
	}
	if strings.ContainsFunc(path, func(r rune) bool { return !unicode.IsPrint(r) }) {
		path = strings.Trim(strconv.Quote(path), `"`)
	}
	return path
}

// Error is every mistake of a file, in the order of its lines.
type Error struct{ Problems []Problem }

func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

func whole(format string, args ...any) error {
	return &Error{[]Problem{{Reason: fmt.Sprintf(format, args...)}}}
}

// Read reads a file; an [Error] names every mistake in it.
func Read(path string) (queue.Limits, error) {
	data, err := load(path)
	if err != nil {
		return queue.Limits{}, fmt.Errorf("limits file: %w", err)
	}
	limits, err := Parse(data)
	if err != nil {
		return queue.Limits{}, fmt.Errorf("limits file %s:\n%w", path, err)
	}
	return limits, nil
}

// load reads a file, and of one that is too large no more than shows it.
func load(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, mostBytes+1))
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:.*?)line (\d+)(?:, column \d+)?: (.*)$`)

// Parse reads a file's text.
func Parse(data []byte) (queue.Limits, error) {
	switch {
	case len(data) > mostBytes:
		return queue.Limits{}, whole("it is larger than %d bytes", mostBytes)
	case !utf8.Valid(data):
		return queue.Limits{}, whole("it is not UTF-8 text")
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			return queue.Limits{}, whole("it is empty: it needs queues with their limits")
		}
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if m := yamlLine.FindStringSubmatch(strings.ReplaceAll(text, "\n", " ")); m != nil {
			line, _ := strconv.Atoi(m[1])
			return queue.Limits{}, &Error{[]Problem{{Line: line, Reason: "not YAML: " + m[2]}}}
		}
		return queue.Limits{}, whole("not YAML: %s", text)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return queue.Limits{}, whole("it holds more than one document")
	}
	p := &parser{lines: map[string]int{}}
	limits := p.file(&document)
	if len(p.problems) > 0 {
		slices.SortFunc(p.problems, func(a, b Problem) int {
			return cmp.Or(a.Line-b.Line, strings.Compare(a.Path, b.Path), strings.Compare(a.Reason, b.Reason))
		})
		return queue.Limits{}, &Error{p.problems}
	}
	return limits, nil
}
