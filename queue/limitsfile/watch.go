package limitsfile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/filewatch"
	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// Watcher puts a limits file in force whenever it changes.
type Watcher struct {
	path   string
	logger *slog.Logger
	apply  func(context.Context, limits.Set) error

	again time.Duration // when limits that were refused are offered again

	decided string // what the file said that was taken or refused last

	mu  sync.Mutex
	at  time.Time // when err was set; zero: never
	err error
}

// NewWatcher makes a watcher, which [Watcher.Run] starts. Apply puts limits in
// force; when it fails, it gets the same limits again every second.
func NewWatcher(path string, logger *slog.Logger, apply func(context.Context, limits.Set) error) *Watcher {
	return &Watcher{path: path, logger: logger, apply: apply, again: time.Second}
}

// Err is why the file as it stands is not in force, or nil: an [Error] that
// names every mistake in it, or that of reading the file or of apply. The limits
// that were in force before still are. It is nil until the file was first read.
func (w *Watcher) Err() error {
	_, err := w.Last()
	return err
}

// Last is Err and when that was found: when the file as it stands was put in force,
// or last refused. It is zero until the file was first read.
func (w *Watcher) Last() (at time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at, w.err
}

// lookEvery is how often the file is looked at: changed limits are in force at once for
// whoever edits them.
const lookEvery = 100 * time.Millisecond

// Run reads the file now and after every change, until ctx is done. A file with
// mistakes changes nothing, and each mistake is logged once.
func (w *Watcher) Run(ctx context.Context) error {
	if _, err := os.Stat(filepath.Dir(w.path)); err != nil {
		return fmt.Errorf("watch %s: %w", w.path, err)
	}
	// read logs by itself what it refuses, because that can also be limits that apply does not take.
	read := func() (filewatch.Version, error) { return w.read(ctx), nil }
	filewatch.Run(ctx, lookEvery, w.read(ctx), read, nil) // it may have changed since it was read first
	return nil
}

// read puts the file in force unless it says what was decided on before. Limits that apply
// does not take are offered again until it does, or the file changes.
func (w *Watcher) read(ctx context.Context) filewatch.Version {
	for {
		version := filewatch.Look(w.path)
		if w.check(ctx, version) == nil {
			return version
		}
		if wait.For(ctx, w.again) != nil {
			return version
		}
	}
}

// check reads the file, whose version it corrects if that fails, and acts on it. The error is that of apply: the same file may be
// taken later.
func (w *Watcher) check(ctx context.Context, version filewatch.Version) error {
	data, err := readFile(w.path)
	version.Failed(err)
	now := "file: " + string(data)
	if err != nil {
		now = "unreadable: " + err.Error()
	}
	if now == w.decided {
		return nil
	}
	var set limits.Set
	if err == nil {
		set, err = Parse(data)
	}
	if err != nil {
		w.decided = now
		w.refuse(err)
		return nil
	}
	if err := w.apply(ctx, set); err != nil {
		if ctx.Err() == nil { // else it failed because all ends
			w.refuse(err)
		}
		w.decided = "" // it may have been put in force in part: so offer even the file before it
		return err
	}
	w.decided = now
	w.mu.Lock()
	w.at, w.err = time.Now(), nil
	w.mu.Unlock()
	w.logger.Info("the limits file is in force", "file", w.path)
	return nil
}

// refuse keeps and logs why the file is not taken, once for the same reason.
func (w *Watcher) refuse(err error) {
	w.mu.Lock()
	known := w.err != nil && w.err.Error() == err.Error()
	w.at, w.err = time.Now(), err
	w.mu.Unlock()
	if known {
		return
	}
	const message = "the limits file was not taken; the limits in force stay"
	mistakes, ok := errors.AsType[*Error](err)
	if !ok {
		w.logger.Error(message, "file", w.path, "error", err)
		return
	}
	for _, problem := range mistakes.Problems {
		w.logger.Error(message, "file", w.path, "error", problem.String())
	}
}

// Watch publishes the limits of a file now and after every change of it, until ctx is done.
// The audit names the file. An error means that the file could not be read or published at
// first, or that its folder cannot be watched; later mistakes are logged, and the limits in
// effect stay.
func Watch(ctx context.Context, client redis.UniversalClient, path string, logger *slog.Logger) error {
	publish := func(ctx context.Context, set limits.Set) error {
		return operate.PublishBy(ctx, client, set, operate.Operator{Reason: "limits file " + path})
	}
	set, err := Load(path)
	if err != nil {
		return err
	}
	if err := publish(ctx, set); err != nil {
		return err
	}
	return NewWatcher(path, logger, publish).Run(ctx)
}
