package queue

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisscript"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

// killed is a hook on a client. The first request of a script does not end while it reads, and an operator kills it.
type killed struct {
	t      *testing.T
	script *redisscript.Script
	server *redistest.Server
	done   bool
}

func (k *killed) on(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	args := cmd.Args()
	if k.done || args[0] != "evalsha" || args[1] != k.script.Hash() {
		return next(ctx, cmd)
	}
	k.done = true
	// In a pcall, as a read would be: the script must not take it for damage of one job and go on.
	const before, after = "pcall(decide)", "pcall(function() while true do redis.call('EXISTS', KEYS[1]) end end)"
	text := strings.Replace(k.script.Text(), before, after, 1)
	if text == k.script.Text() {
		k.t.Errorf("no %s in the script", before)
	}
	said := make(chan error, 1)
	go func() { said <- k.server.Client().Do(ctx, append([]any{"eval", text}, args[2:]...)...).Err() }()
	until(k.t, "the script is killed", func() bool { return k.server.Client().ScriptKill(ctx).Err() == nil })
	err := <-said
	if err == nil || !strings.Contains(err.Error(), "Script killed by user") {
		k.t.Errorf("a script that is killed: %v", err)
	}
	return err
}

// TestKilledScripts: an operator kills a script that reads for too long. It certainly wrote nothing: the producer
// learns that and can send the job again, and the next round of dispatch hands it over once.
func TestKilledScripts(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--busy-reply-threshold", "10")
	r := startRigAt(t, server.Redis(), 0, limits.Set{}, nil)
	hooked := func(script *redisscript.Script) redis.UniversalClient {
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { client.Close() })
		client.AddHook(redistest.OnCommand((&killed{t: t, script: script, server: server}).on))
		return client
	}
	noFaults := func(when string) {
		t.Helper()
		if faults, err := inspect.Faults(t.Context(), server.Client(), r.queue); err != nil || len(faults) > 0 {
			t.Errorf("%s: %+v, %v", when, faults, err)
		}
	}
	lane := asynqwire.Key(r.queue, "g:a;kind=call")
	waiting := func() int64 { return server.Client().ZCard(t.Context(), lane).Val() }

	client := NewClient(hooked(store.EnqueueScript))
	job := Job{Kind: "call", Queue: r.queue, Tenant: "a", Payload: json.RawMessage(`{}`)}
	_, err := client.Enqueue(t.Context(), job)
	if err == nil || errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "certainly not enqueued: ERR Script killed by user") {
		t.Errorf("the enqueue was killed: %v", err)
	}
	if n := waiting(); n != 0 {
		t.Errorf("%d jobs of an enqueue that was killed", n)
	}
	noFaults("after the enqueue")
	if receipt, err := client.Enqueue(t.Context(), job); err != nil || receipt.Existing || waiting() != 1 {
		t.Errorf("the same job again: %+v, %v, %d jobs", receipt, err, waiting())
	}

	d := r.dispatcher()
	d.redis = hooked(store.DispatchScript)
	if _, err := d.round(t.Context(), 1); err == nil || d.unheard.first != 0 {
		t.Errorf("the round was killed: %v, %+v", err, d.unheard)
	}
	if n := waiting(); n != 1 {
		t.Errorf("after the round that was killed %d jobs wait", n)
	}
	noFaults("after the round")
	if ids := r.release(t, d, 1); len(ids) != 1 || waiting() != 0 {
		t.Errorf("the next round hands over %v, and %d jobs wait", ids, waiting())
	}
}
