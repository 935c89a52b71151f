package queue

import (
	"context"

	"github.com/headgate/headgate/queue/internal/asynqwire"
)

// heedCancellations ends the calls that asynq's tools cancel, until ctx is done.
func (w *Worker) heedCancellations(ctx context.Context) {
	cancellations := w.redis.Subscribe(ctx, asynqwire.Cancellations)
	defer cancellations.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case message, open := <-cancellations.Channel():
			if !open {
				return
			}
			for _, live := range w.live {
				live.cancel(message.Payload)
			}
		}
	}
}
