package main

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// mostLine bounds a line of NDJSON: a payload of 1 MiB, escaped, fits.
const mostLine = 2 << 20

// entry is one line of the input: a job, or why it is none.
type entry struct {
	number int    // of the line, from 1
	input  string // as it was read
	line   line
	err    error
}

// source gives one entry after the other; io.EOF ends it.
type source interface{ next() (entry, error) }

func newSource(r io.Reader, format string) (source, error) {
	if format == "csv" {
		return newCSV(r)
	}
	return &ndjson{reader: bufio.NewReaderSize(r, 64<<10)}, nil
}

type ndjson struct {
	reader *bufio.Reader
	number int
}

func (s *ndjson) next() (entry, error) {
	for {
		text, tooLong, err := s.read()
		if err != nil {
			return entry{}, err
		}
		s.number++
		e := entry{number: s.number, input: string(text)}
		switch {
		case tooLong:
			e.input, e.err = strings.ToValidUTF8(e.input[:200], "")+"…", fmt.Errorf("the line is longer than %d bytes", mostLine)
		case !utf8.Valid(text):
			e.input, e.err = strings.ToValidUTF8(e.input, "\uFFFD"), errors.New("the line is not UTF-8 text")
		case len(bytes.TrimSpace(text)) == 0:
			continue // an empty line is no job and no mistake
		default:
			e.line, e.err = parseLine(text)
		}
		return e, nil
	}
}

// read reads a line; of one that is too long it keeps the beginning only.
func (s *ndjson) read() (text []byte, tooLong bool, err error) {
	for {
		part, err := s.reader.ReadSlice('\n')
		if len(text)+len(part) > mostLine {
			tooLong = true
			text = append(text, part[:max(0, min(len(part), 200-len(text)))]...)
		} else if !tooLong {
			text = append(text, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && len(text) > 0:
			return text, tooLong, nil
		case err != nil:
			return nil, false, err
		}
		return bytes.TrimRight(text, "\r\n"), tooLong, nil
	}
}

type csvSource struct {
	reader *csv.Reader
	header []string
}

func newCSV(r io.Reader) (source, error) {
	reader := csv.NewReader(r)
	reader.ReuseRecord = true
	header, err := reader.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("line 1: the file is empty; want a header such as kind,tenant,payload.url")
	}
	if err != nil {
		return nil, fmt.Errorf("not CSV: %w", err)
	}
	s := &csvSource{reader: reader, header: append([]string(nil), header...)}
	s.header[0] = strings.TrimPrefix(s.header[0], "\uFEFF") // spreadsheets write a byte order mark
	return s, checkHeader(s.header)
}

func (s *csvSource) next() (entry, error) {
	record, err := s.reader.Read()
	if errors.Is(err, io.EOF) {
		return entry{}, err
	}
	e := entry{}
	if parse, ok := errors.AsType[*csv.ParseError](err); ok {
		e.number = parse.StartLine
		if !errors.Is(err, csv.ErrFieldCount) {
			// The rest of the file cannot be told apart any more.
			return e, fmt.Errorf("line %d: not CSV: %w", parse.Line, parse.Err)
		}
		e.err = fmt.Errorf("%d cells under %d columns", len(record), len(s.header))
	} else if err != nil {
		return e, err
	} else {
		e.number, _ = s.reader.FieldPos(0)
	}
	input, err := json.Marshal(record)
	if err != nil {
		return e, err
	}
	e.input = string(input)
	if e.err == nil {
		e.line, e.err = csvLine(s.header, record)
	}
	return e, nil
}
