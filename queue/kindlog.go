package queue

import (
	"log/slog"
	"slices"

	"github.com/headgate/headgate/queue/internal/logkey"
)

// kindLog warns of a queue's kinds that the worker has no handler for. Their jobs wait
// for a worker that has one, and that is easily taken for a limit.
type kindLog struct {
	handlers map[string]*handler
	logger   *slog.Logger
	known    []string // the kinds when it last looked
}

// look is given the kinds that the limits in force name, and warns once for each change
// of them.
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
