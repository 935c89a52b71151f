package jobline

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

const (
	// MaxLine bounds a line, in bytes: a payload of 1 MiB, escaped, fits.
	MaxLine = 2 << 20
	// maxShown is what is kept of a line that is too long.
	maxShown = 200
)

// Entry is one line of the input: a job, or why it is none.
type Entry struct {
	Number int    // of the line, from 1
	Input  string // as it was read
	Line   Line
	Err    error
}

// Source gives one entry after the other.
type Source interface {
	// Next is the next entry. [io.EOF] ends the input; any other error is that of
	// reading it, or a [HeaderError].
	Next() (Entry, error)

	// Header is the first line of CSV once it was read, without which its cells
	// say nothing; "" for NDJSON.
	Header() string
}

// HeaderError is a mistake in the first line of CSV: no line was read as a job.
type HeaderError struct{ error }

// NewSource reads "csv", or else NDJSON. It never holds more than a line.
func NewSource(r io.Reader, format string) Source {
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
		if tooLong = tooLong || len(text)+len(part) > MaxLine; tooLong {
			text = append(text, part[:max(0, min(len(part), maxShown-len(text)))]...)
			text = text[:min(len(text), maxShown)]
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
func begin(text []byte, number int, tooLong bool) (e Entry, empty bool) {
	e = Entry{Number: number, Input: string(text)}
	switch {
	case tooLong:
		e.Input = strings.ToValidUTF8(e.Input, "\uFFFD") + "…"
		e.Err = fmt.Errorf("the line is longer than %d bytes", MaxLine)
	case !utf8.Valid(text):
		e.Input, e.Err = strings.ToValidUTF8(e.Input, "\uFFFD"), errors.New("the line is not UTF-8 text")
	}
	return e, !tooLong && len(bytes.TrimSpace(text)) == 0
}

type ndjson struct{ in *input }

func (s *ndjson) Next() (Entry, error) {
	for {
		text, number, tooLong, err := s.in.record(func([]byte) bool { return false })
		if err != nil {
			return Entry{}, err
		}
		e, empty := begin(text, number, tooLong)
		if empty {
			continue
		}
		if e.Err == nil {
			e.Line, e.Err = Parse(text)
		}
		return e, nil
	}
}

func (*ndjson) Header() string { return "" }
