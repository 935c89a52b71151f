package auditfile

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/test/logtest"
	"github.com/headgate/headgate/queue/operate"
)

// TestFile: each entry is a line at once, a file that was moved away is made anew, and an entry that
// cannot be written is in the log.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.ndjson")
	logged := &logtest.Buffer{}
	f, err := Open(path, slog.New(slog.NewTextHandler(logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	has := func(path string, wants ...string) {
		t.Helper()
		text, err := os.ReadFile(path)
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		if err != nil || len(lines) != len(wants) {
			t.Fatalf("%q, %v", text, err)
		}
		for i, want := range wants {
			if !strings.Contains(lines[i], `"actor":"`+want+`"`) {
				t.Errorf("line %d: %s", i, lines[i])
			}
		}
	}
	f.Add(operate.AuditEntry{Actor: "ann"})
	f.Add(operate.AuditEntry{Actor: "bob", Reason: "two\nlines"})
	has(path, "ann", "bob")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	f.Add(operate.AuditEntry{Actor: "eve"})
	has(path, "eve")
	has(path+".1", "ann", "bob")
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	f.Add(operate.AuditEntry{Actor: "mallory"})
	if !strings.Contains(logged.String(), "not in the audit file") || !strings.Contains(logged.String(), "audit.actor=mallory") {
		t.Errorf("the log: %s", logged)
	}
	if _, err := Open(path, slog.Default()); err == nil {
		t.Error("a folder is taken for a file")
	}
	none, err := Open("", slog.Default())
	if none != nil || err != nil {
		t.Errorf("%v %v", none, err)
	}
	none.Add(operate.AuditEntry{})
	var out bytes.Buffer
	(&File{path: Stdout, stdout: &out}).Add(operate.AuditEntry{Actor: "ann"})
	if !strings.Contains(out.String(), `"actor":"ann"`) {
		t.Errorf("%s", &out)
	}
}

// full is a writer that has room for a few bytes at first.
type full struct {
	bytes.Buffer
	room int // 0: any number
}

func (f *full) Write(p []byte) (int, error) {
	if f.room == 0 {
		return f.Buffer.Write(p)
	}
	n, _ := f.Buffer.Write(p[:f.room])
	f.room = 0
	return n, io.ErrShortWrite
}

// TestEntryAfterHalfOfOne: an entry that was written in part, as to a full disk, does not spoil the next one.
func TestEntryAfterHalfOfOne(t *testing.T) {
	out, logged := &full{room: 10}, &logtest.Buffer{}
	f := &File{path: Stdout, stdout: out, logger: slog.New(slog.NewTextHandler(logged, nil))}
	for _, actor := range []string{"ann", "bob", "eve"} {
		f.Add(operate.AuditEntry{Actor: actor})
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 4 || !strings.Contains(lines[1], `"actor":"bob"`) || !json.Valid([]byte(lines[1])) || !json.Valid([]byte(lines[2])) {
		t.Errorf("%q", lines)
	}
	if !strings.Contains(logged.String(), "audit.actor=ann") {
		t.Errorf("the log: %s", logged)
	}
}
