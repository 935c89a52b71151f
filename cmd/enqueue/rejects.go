package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// rejectedLine is a line of the file of rejected lines.
type rejectedLine struct {
	Line   int    `json:"line"`
	Reason string `json:"reason"`
	Input  string `json:"input"`
}

// rejects writes rejected lines beside their final place, and puts the file
// there when it is whole. Without rejected lines there is no file, not even
// that of an earlier run, which would be taken for this one's. What is no plain
// file, such as /dev/null, is written to as it stands.
type rejects struct {
	path   string
	direct bool
	file   *os.File
	out    *bufio.Writer
}

// newRejects looks at the place before any job is enqueued. The input may be nil.
func newRejects(path string, input os.FileInfo) (*rejects, error) {
	there, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			return nil, err
		}
		return &rejects{path: path}, nil
	}
	switch {
	case err != nil:
		return nil, err
	case there.IsDir():
		return nil, fmt.Errorf("%s is a folder", path)
	case input != nil && os.SameFile(there, input):
		return nil, fmt.Errorf("%s is the file that is read", path)
	case !there.Mode().IsRegular(), strings.HasPrefix(path, "/dev/"), strings.HasPrefix(path, "/proc/"):
		// /dev/stdout may lead to a plain file, which is its owner's all the same.
		return &rejects{path: path, direct: true}, nil
	}
	// What a link leads to is replaced, not the link.
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, err
	}
	return &rejects{path: path}, nil
}

func (r *rejects) add(l rejectedLine) error {
	if r.file == nil {
		var err error
		if r.direct {
			r.file, err = os.OpenFile(r.path, os.O_WRONLY|os.O_APPEND, 0)
		} else {
			r.file, err = os.CreateTemp(filepath.Dir(r.path), "."+filepath.Base(r.path)+".*")
		}
		if err != nil {
			r.file = nil
			return fmt.Errorf("keep rejected lines (--rejected says where): %w", err)
		}
		r.out = bufio.NewWriter(r.file)
	}
	encoder := json.NewEncoder(r.out)
	encoder.SetEscapeHTML(false) // the input as it was read
	if err := encoder.Encode(l); err != nil {
		return fmt.Errorf("keep rejected lines: %w", err)
	}
	return nil
}

func (r *rejects) keep() error {
	if r.file == nil {
		if r.direct {
			return nil
		}
		if err := os.Remove(r.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the rejected lines of an earlier run: %w", err)
		}
		return nil
	}
	file := r.file
	r.file = nil
	err := errors.Join(r.out.Flush(), file.Close())
	if err == nil && !r.direct {
		err = os.Rename(file.Name(), r.path)
	}
	if err != nil && !r.direct {
		err = errors.Join(err, os.Remove(file.Name()))
	}
	if err != nil {
		return fmt.Errorf("keep rejected lines: %w", err)
	}
	return nil
}

// abandon removes what keep did not put in place.
func (r *rejects) abandon() {
	if r.file == nil {
		return
	}
	r.file.Close()
	if !r.direct {
		_ = os.Remove(r.file.Name()) // a leftover beside the input harms nothing
	}
}
