package queue

import "testing"

// TestLostRunIsHeldBack: what asynq says of a lost run never reaches Redis, and
// what it says of others does.
func TestLostRunIsHeldBack(t *testing.T) {
	retry := func(failure, payload string) []any {
		message := encodeMessage("q", "x", "call", []byte(payload), nil, 0)
		message = append(message, 7<<3|2, byte(len(failure)))
		message = append(message, failure...)
		return []any{"evalsha", "0123", 8, "asynq:{q}:t:x", "asynq:{q}:active", "asynq:{q}:lease", "asynq:{q}:retry", "p", "f", "P", "F",
			"x", message, 17, 18, false, 19}
	}
	if !endsLostRun(retry(errLost.Error(), "{}")) {
		t.Error("a lost run gives its task back")
	}
	for name, args := range map[string][]any{
		"a failed call":               retry("500", "{}"),
		"a payload that quotes it":    retry("500", errLost.Error()),
		"an error that quotes it":     retry("500: "+errLost.Error(), "{}"),
		"a task that was done":        {"evalsha", "0123", 5, "asynq:{q}:active", "asynq:{q}:lease", "asynq:{q}:t:x", "p", "P", "x", 17, 18},
		"a renewal":                   {"zadd", "asynq:{q}:lease", "xx", 17, "x"},
		"a script without parameters": {"evalsha", "0123", 1, "asynq:{q}:lease"},
	} {
		if endsLostRun(args) {
			t.Errorf("%s is held back", name)
		}
	}
}
