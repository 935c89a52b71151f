// Command worker sends text messages. It has the settings, the dashboard, the HTTP API and the
// metrics of Headgate's own worker.
package main

import (
	"context"
	"log/slog"

	"github.com/headgate/headgate/docs/examples/sms"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/worker"
)

func main() {
	worker.Main(func(_ context.Context, p *worker.Program) error {
		queue.Handle(p.Worker, sms.Send, send)
		return nil
	})
}

// send calls the provider.
func send(_ context.Context, m sms.Message) error {
	slog.Info("sent", "to", m.To, "text", m.Text)
	return nil
}
