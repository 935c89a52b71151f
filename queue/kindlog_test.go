package queue

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/test/logtest"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

// TestKindLog: kinds that the worker has no handler for are logged once.
func TestKindLog(t *testing.T) {
	const some, all = "this worker has no handler for some of a queue's kinds", "this worker has no handler for any of a queue's kinds"
	logged := &bytes.Buffer{}
	l := &kindLog{handlers: map[string]*handler{"sms": {}}, logger: slog.New(slog.NewTextHandler(logged, nil))}
	for _, step := range []struct {
		kinds         []string
		message, what string
	}{
		{nil, "", ""}, // any kind
		{[]string{"sms", "fax", "telex"}, some, "[fax telex]"},
		{[]string{"sms", "fax", "telex"}, "", ""},
		{[]string{"sms"}, "", ""},
		{[]string{"fax"}, all, "[fax]"},
		{[]string{"fax"}, "", ""},
		{[]string{"sms", "fax"}, some, "[fax]"},
	} {
		logged.Reset()
		l.look("mobile", step.kinds)
		lines := strings.Count(logged.String(), "\n")
		if step.message == "" && lines > 0 || step.message != "" && (lines != 1 || !strings.Contains(logged.String(), "level=WARN") ||
			!strings.Contains(logged.String(), step.message) || !strings.Contains(logged.String(), "queue=mobile") || !strings.Contains(logged.String(), step.what)) {
			t.Errorf("kinds %v are logged as %q; want %s %s", step.kinds, logged, step.message, step.what)
		}
	}
}

// TestWorkerLogsKinds: a worker that handles none of its queue's kinds logs that once, when
// it starts or when such limits are published later.
func TestWorkerLogsKinds(t *testing.T) {
	t.Parallel()
	logged := &logtest.Buffer{}
	count := func(text string) int { return strings.Count(logged.String(), text) }
	set := limits.Set{Queues: map[string]limits.Queue{"": {Kinds: []string{"kindlog-fax"}}}}
	r := startRig(t, 0, set, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(logged, nil)) })
	r.run(t)
	r.seen.wait(t, "round", 1)
	if !strings.Contains(logged.String(), "no handler for any of") || count("[kindlog-fax]") != 1 {
		t.Errorf("logged at the start:\n%s", logged)
	}
	set.Queues = map[string]limits.Queue{r.queue: {Kinds: []string{"kindlog-fax", "kindlog-telex"}}}
	if err := operate.Publish(t.Context(), r.server.Client(), set); err != nil {
		t.Fatal(err)
	}
	until(t, "logged", func() bool { return count("[kindlog-fax kindlog-telex]") > 0 })
	r.seen.wait(t, "round", r.seen.outcomes("round")+20)
	if n := count("no handler"); n != 2 {
		t.Errorf("logged %d times:\n%s", n, logged)
	}
}
