package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// rejectedLine is a line of the file of rejected lines.
type rejectedLine struct {
	Line   int    `json:"line"`
	Reason string `json:"reason"`
	Input  string `json:"input"`
}

// rejects writes rejected lines beside their final place, and puts the file
// there when it is whole. Without rejected lines there is no file, not even
// that of an earlier run, which would be taken for this one's.
type rejects struct {
	path string
	file *os.File
	out  *bufio.Writer
}

func (r *rejects) add(l rejectedLine) error {
	if r.file == nil {
		file, err := os.CreateTemp(filepath.Dir(r.path), "."+filepath.Base(r.path)+".*")
		if err != nil {
			return fmt.Errorf("keep rejected lines: %w", err)
		}
		r.file, r.out = file, bufio.NewWriter(file)
	}
	if err := json.NewEncoder(r.out).Encode(l); err != nil {
		return fmt.Errorf("keep rejected lines: %w", err)
	}
	return nil
}

func (r *rejects) keep() error {
	if r.file == nil {
		if err := os.Remove(r.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the rejected lines of an earlier run: %w", err)
		}
		return nil
	}
	file := r.file
	r.file = nil
	err := errors.Join(r.out.Flush(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), r.path)
	}
	if err != nil {
		return fmt.Errorf("keep rejected lines: %w", errors.Join(err, os.Remove(file.Name())))
	}
	return nil
}

// abandon removes what keep did not put in place.
func (r *rejects) abandon() {
	if r.file != nil {
		r.file.Close()
		_ = os.Remove(r.file.Name()) // a leftover beside the input harms nothing
	}
}
