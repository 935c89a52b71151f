package jobline

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/validation"
)

// csvSource finds the records itself and has package encoding/csv read one at a
// time: so a mistake costs one record, not the rest of the file, and a quote that
// is never closed does not draw all of it into memory.
type csvSource struct {
	in        *input
	header    []string
	headerRaw string
}

func (s *csvSource) Header() string { return s.headerRaw }

func (s *csvSource) Next() (Entry, error) {
	if s.header == nil {
		if err := s.readHeader(); err != nil {
			return Entry{}, err
		}
	}
	for {
		quotes := &quoting{}
		text, number, tooLong, err := s.in.record(quotes.open)
		if err != nil {
			return Entry{}, err
		}
		e, empty := begin(text, number, tooLong)
		if empty {
			continue
		}
		if quotes.state == inQuotes {
			e.Err = errors.New("a quote is not closed: all that follows it is taken for one cell")
		}
		if e.Err == nil {
			var record []string
			if record, e.Err = readRecord(text); e.Err == nil && len(record) != len(s.header) {
				e.Err = fmt.Errorf("%d cells under %d columns", len(record), len(s.header))
			}
			if e.Err == nil {
				e.Line, e.Err = csvLine(s.header, record)
			}
		}
		return e, nil
	}
}

func (s *csvSource) readHeader() error {
	quotes := &quoting{}
	text, _, tooLong, err := s.in.record(quotes.open)
	switch {
	case errors.Is(err, io.EOF):
		return HeaderError{errors.New("line 1: the file is empty; add a header such as kind,tenant,payload.url")}
	case err != nil:
		return err
	case tooLong || !utf8.Valid(text) || len(bytes.TrimSpace(text)) == 0:
		return HeaderError{errors.New("line 1: must be a header in UTF-8 text, such as kind,tenant,payload.url")}
	}
	header, err := readRecord(text)
	if err == nil {
		err = checkHeader(header)
	}
	if err != nil {
		return HeaderError{fmt.Errorf("line 1: %w", err)}
	}
	s.header, s.headerRaw = header, string(text)
	return nil
}

func readRecord(text []byte) ([]string, error) {
	reader := csv.NewReader(bytes.NewReader(text))
	reader.FieldsPerRecord = -1
	record, err := reader.Read()
	if parse, ok := errors.AsType[*csv.ParseError](err); ok {
		err = parse.Err // its line and column are those of the record alone
	}
	if err != nil {
		return nil, fmt.Errorf("not CSV: %w", err)
	}
	return record, nil
}

// quoting follows the quotes of a CSV record: a line break within them is text.
type quoting struct{ state int }

const (
	cellBegins = iota
	inCell
	inQuotes
	quoteEnds // or is the first of two, which stand for one
)

// open tells whether a record goes on after a part of it.
func (q *quoting) open(part []byte) bool {
	for _, c := range part {
		switch {
		case q.state == inQuotes:
			if c == '"' {
				q.state = quoteEnds
			}
		case c == '"' && (q.state == cellBegins || q.state == quoteEnds):
			q.state = inQuotes
		case c == ',':
			q.state = cellBegins
		default:
			q.state = inCell
		}
	}
	return q.state == inQuotes
}

// csvLine makes a line of a CSV record. Empty cells are left out.
func csvLine(header, record []string) (Line, error) {
	fields := map[string]json.RawMessage{}
	var wrong []error
	written := map[string]json.RawMessage{} // kept as it was
	nested := map[string]map[string]json.RawMessage{"attributes": {}, "costs": {}, "headers": {}, "payload": {}}
	for i, name := range header {
		if i >= len(record) || record[i] == "" {
			continue
		}
		cell := record[i]
		quoted, err := json.Marshal(cell)
		if err != nil {
			return Line{}, fmt.Errorf("%s: %w", name, err)
		}
		group, inner, isNested := strings.Cut(name, ".")
		switch {
		case isNested && group == "costs":
			if !json.Valid([]byte(cell)) {
				wrong = append(wrong, validation.Field(name, fmt.Sprintf("%.40q is not a number", cell)))
				continue
			}
			nested[group][inner] = json.RawMessage(cell)
		case isNested:
			nested[group][inner] = quoted
		case name == "cost" || name == "costs" || name == "max_attempts" || name == "payload" || name == "attributes" || name == "headers" ||
			name == "on_success" || name == "on_failure":
			if !json.Valid([]byte(cell)) {
				wrong = append(wrong, validation.Field(name, fmt.Sprintf("%.40q is not JSON", cell)))
				continue
			}
			if fields[name] = json.RawMessage(cell); name == "payload" || strings.HasPrefix(name, "on_") {
				fields[name], written[name] = json.RawMessage(`{}`), json.RawMessage(cell)
			}
		default:
			fields[name] = quoted
		}
	}
	for group, values := range nested {
		if len(values) == 0 {
			continue
		}
		if fields[group] != nil {
			return Line{}, fmt.Errorf("%s: there are columns %s and %s.…; use one form", group, group, group)
		}
		text, err := json.Marshal(values)
		if err != nil {
			return Line{}, fmt.Errorf("%s: %w", group, err)
		}
		fields[group] = text
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return Line{}, err
	}
	l, err := Parse(text)
	l.wrong = append(wrong, l.wrong...)
	for name, field := range map[string]*json.RawMessage{"payload": &l.Payload, "on_success": &l.OnSuccess, "on_failure": &l.OnFailure} {
		if written[name] != nil {
			*field = written[name]
		}
	}
	return l, err
}

// checkHeader refuses a CSV header that names what a job does not have.
func checkHeader(header []string) error {
	seen := map[string]bool{}
	for _, name := range header {
		group, inner, isNested := strings.Cut(name, ".")
		switch {
		case isNested && (group == "attributes" || group == "costs" || group == "headers" || group == "payload") && inner != "":
		case !slices.Contains(names, name):
			return fmt.Errorf("column %.60q: unknown field%s", name, check.Suggest(name, names))
		}
		if seen[name] {
			return fmt.Errorf("duplicate column %s", name)
		}
		seen[name] = true
	}
	return nil
}
