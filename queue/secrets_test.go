package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/test/logtest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
)

// TestErrorsTellNoSecrets: a provider that repeats a payload puts no secret of it into the log or
// Redis, and the error still says what to do.
func TestErrorsTellNoSecrets(t *testing.T) {
	t.Parallel()
	logged := &logtest.Buffer{}
	r := hookRig(t, limitsOf(perTenant(1000)), func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(logged, nil)) })
	const repeats = `answered 400: {"password":"CANARY","card":"4111 1111 1111 1111"} for https://u:CANARY@example.com/?token=CANARY`
	r.answer = func(_ context.Context, job Running) error {
		switch job.Tenant {
		case "ends":
			return fmt.Errorf("%s: %w", repeats, asynq.SkipRetry)
		case "held":
			return fmt.Errorf("%s: %w", repeats, usedUp{holding{who: ofEndpoint, length: 24 * time.Hour, named: true}})
		}
		return errors.New(repeats)
	}
	r.run(t)
	ids := []string{r.webhooks(t, "ends", "a.example", 1)[0], r.webhooks(t, "held", "a.example", 1)[0], r.webhooks(t, "again", "a.example", 1)[0]}
	for _, outcome := range []lifecycle.Outcome{lifecycle.Archived, lifecycle.Throttled, lifecycle.Retried} {
		r.seen.wait(t, string(outcome), 1)
	}
	var told strings.Builder
	told.WriteString(logged.String())
	for _, id := range ids {
		d, err := inspect.New(r.server.Client()).Job(t.Context(), r.queue, id)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(fmt.Sprintf("%+v", d), "answered 400") {
			t.Errorf("the error is lost: %+v", d)
		}
		fmt.Fprintf(&told, "%+v %s", d, d.String())
	}
	events, err := inspect.Events(t.Context(), r.server.Client(), r.queue, "", 100)
	if err != nil || len(events) < 3 {
		t.Fatal(events, err)
	}
	fmt.Fprintf(&told, "%+v %+v", events, r.held(t))
	if strings.Contains(told.String(), "CANARY") || strings.Contains(told.String(), "4111") || !strings.Contains(logged.String(), "answered 400") {
		t.Errorf("it tells a secret, or nothing: %s", told.String())
	}
}
