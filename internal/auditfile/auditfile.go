// Package auditfile appends the changes that operators make to a file.
package auditfile

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/headgate/headgate/queue/operate"
)

// Stdout stands for the standard output in place of a file.
const Stdout = "stdout"

// File is where the entries go, one JSON object a line.
type File struct {
	path   string // "": nowhere
	stdout io.Writer
	logger *slog.Logger
	mu     sync.Mutex
	torn   bool // the last entry was written in part, as to a full disk
}

// Open checks that the file can be written, and creates it. "" is no file, for which it returns nil.
func Open(path string, logger *slog.Logger) (*File, error) {
	f := &File{path: path, stdout: os.Stdout, logger: logger}
	if path == "" {
		return nil, nil
	}
	if err := f.append(nil); err != nil {
		return nil, fmt.Errorf("audit file: %w", err)
	}
	return f, nil
}

// Add appends an entry. The change is made already, so an error is logged.
func (f *File) Add(e operate.AuditEntry) {
	if f == nil {
		return
	}
	text, err := json.Marshal(e)
	if err == nil {
		err = f.append(append(text, '\n'))
	}
	if err != nil {
		f.logger.Error("a change is not in the audit file", "file", f.path, "error", err, "audit", e)
	}
}

// append opens the file for each entry, so that it can be moved away at any time.
func (f *File) append(text []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path == Stdout {
		return f.write(f.stdout, text)
	}
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := f.write(file, text); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// write writes an entry, on a line of its own after one that was written in part.
func (f *File) write(to io.Writer, text []byte) error {
	if f.torn {
		text = append([]byte{'\n'}, text...)
	}
	n, err := to.Write(text)
	if err == nil {
		f.torn = false
	} else if n > 0 {
		f.torn = true
	}
	return err
}
