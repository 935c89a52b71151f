// Package strictyaml reads configuration files and rejects everything that it does not
// understand: unknown and duplicate fields, anchors, aliases and tags. It reports all
// mistakes at once, each with its line and a suggestion.
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

	Unknown bool // a field that is not known
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

// Parse calls read with the root node of a file's text. The error is an [*Error] with every
// mistake: that the text is longer than maxBytes, that it is empty (needs says what belongs
// into it), that it is not YAML, or what read reported to the parser.
func Parse(data []byte, maxBytes int, needs string, read func(p *Parser, root *yaml.Node)) error {
	return parse(&Parser{Lines: map[string]int{}}, data, maxBytes, needs, read)
}

// ParseSecret is [Parse] for a file of secrets. Errors quote nothing of it but known fields
// and the keys that [Parser.Entries] passes on. Only [Parser.Rate] and [Parser.Count] quote
// values, so they are not for such a file.
func ParseSecret(data []byte, maxBytes int, needs string, read func(p *Parser, root *yaml.Node)) error {
	return parse(&Parser{Lines: map[string]int{}, secret: true}, data, maxBytes, needs, read)
}

func parse(p *Parser, data []byte, maxBytes int, needs string, read func(p *Parser, root *yaml.Node)) error {
	switch {
	case len(data) > maxBytes:
		return whole("must be at most %d bytes", maxBytes)
	case !utf8.Valid(data):
		return whole("must be UTF-8 text")
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			return whole("empty; add %s", needs)
		}
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if m := yamlLine.FindStringSubmatch(strings.ReplaceAll(text, "\n", " ")); m != nil {
			line, _ := strconv.Atoi(m[1])
			reason := "not YAML: " + m[2]
			if strings.Contains(m[2], "cannot start any token") {
				reason += "; indent with spaces instead of tabs, and quote values that begin with a sign"
			}
			if p.secret {
				reason = "not YAML"
			}
			return &Error{[]Problem{{Line: line, Reason: reason}}}
		}
		if p.secret {
			return whole("not YAML")
		}
		return whole("not YAML: %s", text)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return whole("must be a single YAML document")
	}
	if len(document.Content) != 1 {
		p.Wrong(&document, "", "empty; add %s", needs)
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
