package main

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

const (
	// mostLine bounds a line: a payload of 1 MiB, escaped, fits.
	mostLine = 2 << 20
	// mostShown is what is kept of a line that is too long.
	mostShown = 200
)

// entry is one line of the input: a job, or why it is none.
type entry struct {
	number int    // of the line, from 1
	input  string // as it was read
	line   line
	err    error
}

// source gives one entry after the other; io.EOF ends it.
type source interface{ next() (entry, error) }

func newSource(r io.Reader, format string) source {
	in := &input{reader: bufio.NewReaderSize(r, 64<<10)}
	if format == "csv" {
		return &csvSource{in: in}
	}
	return &ndjson{in: in}
}

// input is text that is read without ever holding more of it than one line.
type input struct {
	reader *bufio.Reader
	began  bool
	lines  int // read so far
}

// record reads lines for as long as open says that the last one goes on, and
// gives the number of the first. Of a record that is too long it keeps the
// beginning alone.
func (in *input) record(open func(part []byte) bool) (text []byte, number int, tooLong bool, err error) {
	if !in.began {
		in.began = true
		if mark, _ := in.reader.Peek(3); string(mark) == "\uFEFF" {
			_, _ = in.reader.Discard(3) // spreadsheets and editors write a byte order mark; it was just seen to be there
		}
	}
	number = in.lines + 1
	for {
		part, err := in.reader.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF) {
			return nil, number, false, err
		}
		goesOn := open(part)
		if tooLong = tooLong || len(text)+len(part) > mostLine; tooLong {
			text = append(text, part[:max(0, min(len(part), mostShown-len(text)))]...)
			text = text[:min(len(text), mostShown)]
		} else {
			text = append(text, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(text) == 0:
			return nil, number, false, io.EOF
		case err == nil:
			if in.lines++; goesOn {
				continue
			}
		}
		return bytes.TrimRight(text, "\r\n"), number, tooLong, nil
	}
}

// begin makes the entry of a record. Empty ones are neither jobs nor mistakes.
func begin(text []byte, number int, tooLong bool) (e entry, empty bool) {
	e = entry{number: number, input: string(text)}
	switch {
	case tooLong:
		e.input = strings.ToValidUTF8(e.input, "\uFFFD") + "…"
		e.err = fmt.Errorf("the line is longer than %d bytes", mostLine)
	case !utf8.Valid(text):
		e.input, e.err = strings.ToValidUTF8(e.input, "\uFFFD"), errors.New("the line is not UTF-8 text")
	}
	return e, !tooLong && len(bytes.TrimSpace(text)) == 0
}

type ndjson struct{ in *input }

func (s *ndjson) next() (entry, error) {
	for {
		text, number, tooLong, err := s.in.record(func([]byte) bool { return false })
		if err != nil {
			return entry{}, err
		}
		e, empty := begin(text, number, tooLong)
		if empty {
			continue
		}
		if e.err == nil {
			e.line, e.err = parseLine(text)
		}
		return e, nil
	}
}

// csvSource finds the records itself and has package encoding/csv read one at a
// time: so a mistake costs one record, not the rest of the file, and a quote that
// is never closed does not draw all of it into memory.
type csvSource struct {
	in        *input
	header    []string
	headerRaw string
}

func (s *csvSource) next() (entry, error) {
	if s.header == nil {
		if err := s.readHeader(); err != nil {
			return entry{}, err
		}
	}
	for {
		quotes := &quoting{}
		text, number, tooLong, err := s.in.record(quotes.open)
		if err != nil {
			return entry{}, err
		}
		e, empty := begin(text, number, tooLong)
		if empty {
			continue
		}
		if quotes.state == inQuotes {
			e.err = errors.New("a quote is not closed: all that follows it is taken for one cell")
		}
		if e.err == nil {
			var record []string
			if record, e.err = readRecord(text); e.err == nil && len(record) != len(s.header) {
				e.err = fmt.Errorf("%d cells under %d columns", len(record), len(s.header))
			}
			if e.err == nil {
				e.line, e.err = csvLine(s.header, record)
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
		return usageError{errors.New("line 1: the file is empty; want a header such as kind,tenant,payload.url")}
	case err != nil:
		return err
	case tooLong || !utf8.Valid(text) || len(bytes.TrimSpace(text)) == 0:
		return usageError{errors.New("line 1: want a header in UTF-8 text, such as kind,tenant,payload.url")}
	}
	header, err := readRecord(text)
	if err == nil {
		err = checkHeader(header)
	}
	if err != nil {
		return usageError{fmt.Errorf("line 1: %w", err)}
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
