package limitsfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/test/openfiles"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

func next[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case got := <-from:
		return got
	case <-time.After(patience):
		t.Fatalf("%s did not come", what)
		panic("unreachable")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace does as editors do.
func replace(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func rateOf(limits limits.Set) throttle.Rate { return limits.Queues["email"].Limits[0].Rate }

// watched runs a watcher; what it takes and logs comes through the channels.
func watched(t *testing.T, path string, adjust func(*Watcher)) (w *Watcher, taken chan limits.Set, logged chan string) {
	t.Helper()
	taken, logged = make(chan limits.Set, 100), make(chan string, 100)
	w = NewWatcher(path, slog.New(slog.NewTextHandler(lines(logged), &slog.HandlerOptions{Level: slog.LevelError})), func(_ context.Context, limits limits.Set) error {
		taken <- limits
		return nil
	})
	if adjust != nil {
		adjust(w)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := next(t, "the end", ended); err != nil {
			t.Error(err)
		}
	})
	return w, taken, logged
}

func TestWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	replace(t, path, good)
	w, taken, logged := watched(t, path, nil)
	next(t, "the first read", taken)
	began := time.Now()
	replace(t, path, strings.Replace(good, "300/s", "200/s", 1))
	if rate := rateOf(next(t, "a change", taken)); rate != throttle.PerSecond(200) {
		t.Errorf("rate = %v after the change", rate)
	}

	replace(t, path, "queues: {email: {kidns: [x], limts: []}}")
	for _, want := range []string{`did you mean \"kinds\"?`, `did you mean \"limits\"?`} {
		if line := next(t, "a report of the mistakes", logged); !strings.Contains(line, want) {
			t.Errorf("logged %s; want %s", line, want)
		}
	}
	if mistakes, ok := errors.AsType[*Error](w.Err()); !ok || len(mistakes.Problems) != 2 {
		t.Errorf("Err = %v; want both mistakes", w.Err())
	}
	if at, err := w.Last(); at.Before(began) || at.After(time.Now()) || err != w.Err() {
		t.Errorf("Last = %v, %v", at, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if line := next(t, "a report of the missing file", logged); !strings.Contains(line, "no such file") {
		t.Errorf("logged %s", line)
	}
	write(t, path, good)
	if rate := rateOf(next(t, "the mended file", taken)); rate != throttle.PerSecond(300) {
		t.Errorf("rate = %v after the mistake was mended", rate)
	}
	if len(taken) > 0 || len(logged) > 0 {
		t.Errorf("%d more were taken, %d more logged", len(taken), len(logged))
	}
}

// TestWatchOfAFileThatCannotBeOpenedOnce: it is read as soon as that works.
func TestWatchOfAFileThatCannotBeOpenedOnce(t *testing.T) {
	synctest.Test(t, fileThatCannotBeOpenedOnce)
}

func fileThatCannotBeOpenedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, good)
	_, taken, logged := watched(t, path, nil)
	next(t, "the first read", taken)
	write(t, path+".new", strings.Replace(good, "300/s", "20/s", 1)) // of another size: both files may have the same time
	openfiles.None(t, func() {
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		if line := next(t, "a report", logged); !strings.Contains(line, "too many open files") {
			t.Errorf("logged %s", line)
		}
		time.Sleep(5 * lookEvery)
	})
	if rate := rateOf(next(t, "the change", taken)); rate != throttle.PerSecond(20) || len(logged) > 0 {
		t.Errorf("rate = %v, and %d more logged", rate, len(logged))
	}
}

// Kubernetes mounts limits.yaml -> ..data/limits.yaml, ..data -> ..2026, and
// swaps ..data: the file itself is never touched.
func TestWatchSwappedSymlink(t *testing.T) {
	dir := t.TempDir()
	version := func(name, text string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "limits.yaml"), text)
		link := filepath.Join(dir, "..new")
		if err := os.Symlink(name, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..1", good)
	path := filepath.Join(dir, "limits.yaml")
	if err := os.Symlink("..data/limits.yaml", path); err != nil {
		t.Fatal(err)
	}
	_, taken, _ := watched(t, path, nil)
	next(t, "the first read", taken)
	version("..2", strings.Replace(good, "300/s", "200/s", 1))
	if rate := rateOf(next(t, "the swap", taken)); rate != throttle.PerSecond(200) {
		t.Errorf("rate = %v after the swap", rate)
	}
}

// A folder in which something always happens must not put the reading off for ever.
func TestWatchInBusyFolder(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "limits.yaml")
	write(t, path, good)
	_, taken, _ := watched(t, path, nil)
	next(t, "the first read", taken)
	replace(t, path, strings.Replace(good, "300/s", "200/s", 1))
	for end := time.Now().Add(patience); len(taken) == 0 && time.Now().Before(end); {
		write(t, filepath.Join(dir, "noise"), "x")
	}
	if rate := rateOf(next(t, "the change", taken)); rate != throttle.PerSecond(200) {
		t.Errorf("rate = %v", rate)
	}
}

// A folder that is replaced takes the watch along.
func TestWatchReplacedFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "conf")
	path := filepath.Join(dir, "limits.yaml")
	put := func(text string) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, path, text)
	}
	put(good)
	_, taken, _ := watched(t, path, nil)
	next(t, "the first read", taken)
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	put(strings.Replace(good, "300/s", "200/s", 1))
	if rate := rateOf(next(t, "the change", taken)); rate != throttle.PerSecond(200) {
		t.Errorf("rate = %v", rate)
	}
}

// Limits that could not be put in force, for Redis was away, are offered again.
func TestWatchOffersAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, good)
	tries := make(chan struct{}, 100)
	let := make(chan error)
	w, taken, logged := watched(t, path, func(w *Watcher) {
		w.again = time.Millisecond
		apply := w.apply
		w.apply = func(ctx context.Context, limits limits.Set) error {
			tries <- struct{}{}
			if err := <-let; err != nil {
				return err
			}
			return apply(ctx, limits)
		}
	})
	for range 3 {
		next(t, "a try", tries)
		let <- errors.New("no Redis")
	}
	next(t, "a try", tries)
	if err := w.Err(); err == nil || err.Error() != "no Redis" {
		t.Errorf("Err = %v before it works", err)
	}
	let <- nil
	next(t, "the limits", taken)
	if line := next(t, "a report", logged); !strings.Contains(line, "no Redis") || len(logged) > 0 {
		t.Errorf("logged %s and %d more; want it once", line, len(logged))
	}
}

func TestWatchWithoutFolder(t *testing.T) {
	if err := NewWatcher(filepath.Join(t.TempDir(), "none", "limits.yaml"), slog.New(slog.NewTextHandler(io.Discard, nil)), nil).Run(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Watch = %v", err)
	}
}

type lines chan<- string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// TestWatchPublishes: Watch puts a file in effect for all workers, follows its changes, and the
// audit names the file. A mistake in the first file is an error; later ones are logged.
func TestWatchPublishes(t *testing.T) {
	client, path := redistest.Start(t).Client(), filepath.Join(t.TempDir(), "limits.yaml")
	logged := make(chan string, 100)
	logger := slog.New(slog.NewTextHandler(lines(logged), nil))
	write(t, path, "queues: {email: {kidns: [x]}}")
	if err := Watch(t.Context(), client, path, logger); err == nil || !strings.Contains(err.Error(), path+":\nline 1: ") {
		t.Errorf("Watch = %v; want the mistake with its file and line", err)
	}
	if n := client.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("a file with a mistake has written %d keys", n)
	}

	replace(t, path, good)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Watch(ctx, client, path, logger) }()
	inEffect := func(rate string) {
		t.Helper()
		if line := next(t, "that the file is in force", logged); !strings.Contains(line, "is in force") {
			t.Fatalf("logged %s", line)
		}
		all, err := inspect.LimitsInForce(t.Context(), client, "email", "")
		if err != nil || len(all) == 0 || !strings.HasPrefix(all[0].String(), rate) {
			t.Errorf("in effect: %v, %v; want %s", all, err, rate)
		}
	}
	inEffect("300/s")
	replace(t, path, strings.Replace(good, "300/s", "200/s", 1))
	inEffect("200/s")
	entries, err := operate.Audit(t.Context(), client, "email", 10)
	if err != nil || len(entries) != 2 {
		t.Fatalf("audit: %+v, %v; want both publications", entries, err)
	}
	for _, e := range entries {
		if e.Action != "publish" || e.Reason != "limits file "+path || !strings.HasSuffix(e.Actor, fmt.Sprintf(", process %d", os.Getpid())) {
			t.Errorf("audit: %+v", e)
		}
	}

	replace(t, path, "queues: {email: {kidns: [x]}}")
	if line := next(t, "a report of the mistake", logged); !strings.Contains(line, `did you mean \"kinds\"?`) {
		t.Errorf("logged %s", line)
	}
	cancel()
	if err := next(t, "the end", ended); err != nil {
		t.Error(err)
	}
}
