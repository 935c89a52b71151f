package queue

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
)

// TestErrorBehindAMissingField: if a command of a pipeline finds nothing, the error of a
// later command is still returned.
func TestErrorBehindAMissingField(t *testing.T) {
	t.Parallel()
	client := redistest.Any(t).Client()
	for name, test := range map[string]struct {
		wrong func(queue string) string // a key that is made a string
		read  func(ctx context.Context, queue, id string) error
	}{
		"Overview": {
			func(queue string) string { return asynqwire.Key(queue, "retry") },
			func(ctx context.Context, queue, _ string) error {
				_, err := inspect.New(client).Overview(ctx, queue)
				return err
			},
		},
		"Outlook": {
			func(queue string) string { return asynqwire.Key(queue, "groups") },
			func(ctx context.Context, queue, _ string) error {
				_, err := inspect.New(client).Outlook(ctx, queue, "a")
				return err
			},
		},
		"Explain": {
			func(queue string) string { return asynqwire.Key(queue, "retry") },
			func(ctx context.Context, queue, id string) error {
				_, err := inspect.New(client).Explain(ctx, queue, id)
				return err
			},
		},
		"Totals": {
			func(queue string) string { return store.Key(queue, "totals") },
			func(ctx context.Context, queue, _ string) error {
				_, err := inspect.New(client).Totals(ctx, queue)
				return err
			},
		},
		"Result": {
			func(queue string) string { return store.Key(queue, "archive") },
			func(ctx context.Context, queue, id string) error {
				_, err := NewClient(client).Result(ctx, queue, id)
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, queue, id := t.Context(), redistest.Queue(t), "x"
			if err := asynqwire.RegisterQueues(ctx, client, queue); err != nil {
				t.Fatal(err)
			}
			message := asynqwire.Encode(queue, id, "call", nil, nil, 0)
			client.HSet(ctx, asynqwire.Key(queue, "t:"+id), "msg", message, "state", "archived")
			if err := test.read(ctx, queue, id); err != nil {
				t.Fatalf("before: %v", err)
			}
			client.Set(ctx, test.wrong(queue), "text", 0)
			if err := test.read(ctx, queue, id); !redis.HasErrorPrefix(err, "WRONGTYPE") {
				t.Errorf("%s is a string: %v; want WRONGTYPE", test.wrong(queue), err)
			}
		})
	}
}
