package limitsfile

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/headgate/headgate/queue/limits"
)

// Watcher puts a limits file in force whenever it changes.
type Watcher struct {
	path   string
	logger *slog.Logger
	apply  func(context.Context, limits.Set) error

	settle time.Duration // how long the folder must be left alone: editors write in several steps
	most   time.Duration // how long a busy folder can keep the file from being read
	again  time.Duration // when limits that were refused are offered again
	poll   time.Duration // when the file is read although nothing was heard of it

	mu  sync.Mutex
	at  time.Time // when err was set; zero: never
	err error
}

// NewWatcher makes a watcher, which [Watcher.Run] starts. Apply puts limits in
// force; when it fails, it gets the same limits again every second.
func NewWatcher(path string, logger *slog.Logger, apply func(context.Context, limits.Set) error) *Watcher {
	return &Watcher{
		path: path, logger: logger, apply: apply,
		settle: 100 * time.Millisecond, most: time.Second, again: time.Second, poll: 10 * time.Second,
	}
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

// Run reads the file now and after every change, until ctx is done. A file with
// mistakes changes nothing, and each mistake is logged once. It watches the
// file's folder, because editors and Kubernetes replace files rather than write
// them, and looks by itself every few seconds, because network folders, and
// folders that are replaced themselves, do not tell.
func (w *Watcher) Run(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", w.path, err)
	}
	defer watcher.Close()
	folder := filepath.Dir(w.path)
	if err := watcher.Add(folder); err != nil {
		return fmt.Errorf("watch %s: %w", w.path, err)
	}
	var decided string
	var restless time.Time    // since when the folder changes; zero: it does not
	timer := time.NewTimer(0) // the file may have changed since it was read first
	defer timer.Stop()
	soon := func() {
		if restless.IsZero() {
			restless = time.Now()
		}
		timer.Reset(min(w.settle, max(0, w.most-time.Since(restless))))
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-watcher.Errors:
			w.logger.Warn("watching the limits file", "file", w.path, "error", err)
			soon() // events may have been lost
		case <-watcher.Events:
			soon()
		case <-timer.C:
			restless = time.Time{}
			// Again, in case that the folder was replaced; else it changes nothing.
			_ = watcher.Add(folder)
			next := w.poll
			if decided, err = w.check(ctx, decided); err != nil {
				next = w.again
			}
			timer.Reset(next)
		}
	}
}

// check reads the file and acts on it if it is not the one that was decided
// before. The error is that of apply: the same file may be taken later.
func (w *Watcher) check(ctx context.Context, decided string) (now string, err error) {
	data, err := load(w.path)
	if err != nil {
		now = "unreadable: " + err.Error()
	} else {
		now = fmt.Sprintf("%x", sha256.Sum256(data))
	}
	if now == decided {
		return now, nil
	}
	var set limits.Set
	if err == nil {
		set, err = Parse(data)
	}
	if err != nil {
		w.refuse(err)
		return now, nil
	}
	if err := w.apply(ctx, set); err != nil {
		if ctx.Err() == nil { // else it failed because all ends
			w.refuse(err)
		}
		return "", err // it may have been put in force in part: so offer even the file before it
	}
	w.mu.Lock()
	w.at, w.err = time.Now(), nil
	w.mu.Unlock()
	w.logger.Info("the limits file is in force", "file", w.path)
	return now, nil
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
