package filewatch_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/filewatch"
)

// TestRun: a version is read once, after the files were left alone for a look, and so is
// the end of a file.
func TestRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	text := ""
	write := func(more string) {
		t.Helper()
		text += more
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var reads atomic.Int64
		go filewatch.Run(ctx, time.Second, filewatch.Look(path), func() (filewatch.Version, error) {
			reads.Add(1)
			return filewatch.Look(path), nil
		}, nil)
		time.Sleep(500 * time.Millisecond) // it acts between two looks
		looks := func(n int, want int64, what string) {
			t.Helper()
			time.Sleep(time.Duration(n) * 1001 * time.Millisecond)
			synctest.Wait()
			if reads := reads.Load(); reads != want {
				t.Errorf("%s: it was read %d times, want %d", what, reads, want)
			}
		}
		looks(5, 0, "nothing changed")
		for range 5 {
			write("b")
			looks(1, 0, "it still changes")
		}
		looks(1, 1, "it was left alone")
		looks(5, 1, "nothing changed again")
		if err := os.Chmod(path, 0o640); err != nil {
			t.Fatal(err)
		}
		looks(2, 2, "its mode changed")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		looks(2, 3, "it is gone")
		looks(5, 3, "it stays away")
	})
}

// TestRefusals: a file that cannot be opened is tried again and again and refused once. One with
// a mistake is refused after each change.
func TestRefusals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var fails atomic.Pointer[error]
		var reads, refused atomic.Int64
		go filewatch.Run(ctx, time.Second, filewatch.Look(path), func() (filewatch.Version, error) {
			reads.Add(1)
			return filewatch.Look(path), *fails.Load()
		}, func(error) { refused.Add(1) })
		after := func(what string, text string, err error, leastReads, wantRefused int64) {
			t.Helper()
			reads.Store(0)
			refused.Store(0)
			fails.Store(&err)
			write(text)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if reads, refused := reads.Load(), refused.Load(); reads < leastReads || refused != wantRefused {
				t.Errorf("%s: read %d times, refused %d times; want at least %d and %d", what, reads, refused, leastReads, wantRefused)
			}
		}
		closed := &fs.PathError{Op: "open", Path: path, Err: syscall.EMFILE}
		after("it cannot be opened", "a", closed, 4, 1)
		after("it still cannot", "ab", closed, 4, 0)
		after("it can", "abc", nil, 1, 0)
		after("it cannot be opened again", "abcd", closed, 4, 1)
		after("it has a mistake", "abcde", errors.New("a mistake"), 1, 1)
		after("it has the same one", "abcdef", errors.New("a mistake"), 1, 1)
	})
}

// TestChangesAtTheSameTime: a file that is changed right after it was looked at, so that its time is the same,
// is read again.
func TestChangesAtTheSameTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write := func(text string, at time.Time) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	for try := 1; ; try++ { // the machine may be busy between the two
		now := time.Now()
		write("a", now)
		seen := filewatch.Look(path)
		if !seen[path].Fresh && try < 1000 {
			continue
		}
		write("b", now)
		ctx, cancel := context.WithCancel(t.Context())
		read := make(chan bool, 1)
		go filewatch.Run(ctx, 20*time.Millisecond, seen, func() (filewatch.Version, error) {
			select {
			case read <- true:
			default:
			}
			return filewatch.Look(path), nil
		}, nil)
		select {
		case <-read:
		case <-time.After(time.Minute):
			t.Error("it was not read")
		}
		cancel()
		return
	}
}
