// Package strictyaml reads files in which a mistake must not pass for a setting.
//
// An unknown field is a mistake, not a comment, and so are fields that stand
// twice, anchors and tags. All mistakes are reported at once, each with its line
// and what was probably meant.
package strictyaml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

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

// whole is a mistake of the file as such.
func whole(format string, args ...any) error {
	return &Error{[]Problem{{Reason: fmt.Sprintf(format, args...)}}}
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:.*?)line (\d+)(?:, column \d+)?: (.*)$`)

// Parse hands the root of a file's text to read, which reports what it finds wrong
// to the parser. The error names every mistake: that the file is larger than most
// bytes, or empty, for it needs what needs says, or no YAML, and those of read.
func Parse(data []byte, most int, needs string, read func(p *Parser, root *yaml.Node)) error {
	switch {
	case len(data) > most:
		return whole("it is larger than %d bytes", most)
	case !utf8.Valid(data):
		return whole("it is not UTF-8 text")
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			return whole("it is empty: it needs %s", needs)
		}
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if m := yamlLine.FindStringSubmatch(strings.ReplaceAll(text, "\n", " ")); m != nil {
			line, _ := strconv.Atoi(m[1])
			return &Error{[]Problem{{Line: line, Reason: "not YAML: " + m[2]}}}
		}
		return whole("not YAML: %s", text)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return whole("it holds more than one document")
	}
	p := &Parser{Lines: map[string]int{}}
	if len(document.Content) != 1 {
		p.Wrong(&document, "", "it is empty: it needs %s", needs)
	} else if p.plain(document.Content[0], "") {
		read(p, document.Content[0])
	}
	if len(p.Problems) == 0 {
		return nil
	}
	slices.SortFunc(p.Problems, func(a, b Problem) int {
		return cmp.Or(a.Line-b.Line, strings.Compare(a.Path, b.Path), strings.Compare(a.Reason, b.Reason))
	})
	return &Error{p.Problems}
}
