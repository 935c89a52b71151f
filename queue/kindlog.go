package queue

import (
	"log/slog"
	"slices"

	"github.com/headgate/headgate/queue/internal/logkey"
)

// kindLog warns of kinds of a queue that have no handler in this worker. Their jobs wait for
// a worker with a handler, which is easily mistaken for a limit.
type kindLog struct {
	handlers map[string]*handler
	logger   *slog.Logger
	known    []string // the kinds of the last look
}

// look takes the kinds in the queue's published limits, and warns once after each change of
// them.
func (l *kindLog) look(queue string, kinds []string) {
	if slices.Equal(kinds, l.known) {
		return
	}
	l.known = kinds
	var missing []string
	for _, kind := range kinds {
		if l.handlers[kind] == nil {
			missing = append(missing, kind)
		}
	}
	switch len(missing) {
	case 0:
	case len(kinds):
		l.logger.Warn("this worker has no handler for any of a queue's kinds", logkey.Queue, queue, "kinds", missing)
	default:
		l.logger.Warn("this worker has no handler for some of a queue's kinds", logkey.Queue, queue, "kinds", missing)
	}
}
