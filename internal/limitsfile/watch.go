package limitsfile

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/headgate/headgate/queue"
)

// settle is how long a file must be left alone before it is read: editors write
// in several steps.
const settle = 100 * time.Millisecond

// Watch reads the file again whenever it changes, and gives what it says to
// apply, until ctx is done. A file with mistakes, or limits that apply refuses,
// are logged and change nothing. It watches the file's folder, because editors
// and Kubernetes replace files rather than write them.
func Watch(ctx context.Context, path string, logger *slog.Logger, apply func(queue.Limits) error) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", path, err)
	}
	defer watcher.Close()
	if err := watcher.Add(filepath.Dir(path)); err != nil {
		return fmt.Errorf("watch %s: %w", path, err)
	}
	var last string
	timer := time.NewTimer(0) // the file may have changed since it was read first
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err, ok := <-watcher.Errors:
			if ok {
				logger.Warn("watching the limits file", "file", path, "error", err)
			}
			timer.Reset(settle) // events may have been lost
		case _, ok := <-watcher.Events:
			if ok {
				timer.Reset(settle)
			}
		case <-timer.C:
			now := contents(path)
			if now == last {
				continue
			}
			last = now
			reload(path, logger, apply)
		}
	}
}

func contents(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func reload(path string, logger *slog.Logger, apply func(queue.Limits) error) {
	limits, err := Read(path)
	if err == nil {
		err = apply(limits)
	}
	if err != nil {
		logger.Error("the limits file was not taken; the limits in force stay", "file", path, "error", err)
		return
	}
	logger.Info("the limits file is in force", "file", path)
}
