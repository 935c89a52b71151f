package queue

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/throttle"
)

// TestDroppedPlansAreForgotten: what a script remembers of a plan is undone with it.
func TestDroppedPlansAreForgotten(t *testing.T) {
	t.Parallel()
	limit := rampedTo(throttle.FixedWindow, nil)
	r := startRig(t, -1, limitsOf(limit), nil)
	client := r.server.Client()
	client.SAdd(t.Context(), store.Key(r.queue, "some"), "lane")
	script := store.NewScript(`
local set, now = headgate .. 'some', clock()
attempt('what was planned', function()
  pick(set, 1)
  plan('SADD', headgate .. 'other', 'x')
  note_length('lane', 3)
  ramps().begin(lane_limits('a', now).own[1], now)
  error('it is damaged', 0)
end)
local entry = lane_limits('a', now).own[1]
entry.growing = nil
local grows = ramps().spec(entry, entry.published, now).b == 50 and not entry.growing
return {#pick(set, 1), left['lane'], grows and 1 or 0}`)
	reply, err := script.Run(t.Context(), client, store.ScriptKeys(r.queue), r.queue)
	if got := fmt.Sprint(reply, err); got != "[1 0 1] <nil>" {
		t.Errorf("picked again, the length of the lane, a ramp that did not begin: %s", got)
	}
	if n := client.Exists(t.Context(), store.Key(r.queue, "other"), store.Key(r.queue, "ramp:new-domains:a"), store.Key(r.queue, "some")).Val(); n != 0 {
		t.Errorf("%d keys of what was dropped, or not picked, are there", n)
	}
	if text := faultsOf(t, r); text != "what was planned: it is damaged" {
		t.Errorf("faults: %s", text)
	}
}

// TestNothingIsWrittenAsNil: a plan with a value that is missing is refused before anything is written, as is a slot that
// no job can have.
func TestNothingIsWrittenAsNil(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	script := store.NewScript(`
attempt('plan', function() plan('HSET', headgate .. 'x', 'a', nil, 'b') end)
attempt('plan, at its end', function() plan('HSET', headgate .. 'x', 'a', nil) end)
attempt('early slot', function() slot_write(-1, 0, 0) end)
attempt('late slot', function() slot_write(0, 1e16, 0) end)
attempt('place of a slot', function() slot_write(0, 0, 1e16) end)
attempt('place of a job', function() leaving_read('nowhere') end)
return redis.call('EXISTS', headgate .. 'x')`)
	if n, err := script.Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), r.queue); err != nil || n != int64(0) {
		t.Errorf("%v, %v", n, err)
	}
	want := "early slot: a slot is out of range\nlate slot: a slot is out of range\nplace of a job: \"nowhere\" is no place of a job\n" +
		"place of a slot: a slot is out of range\nplan, at its end: cannot write nil to " + store.Key(r.queue, "x") + "\nplan: cannot write nil to " + store.Key(r.queue, "x")
	if text := faultsOf(t, r); text != want {
		t.Errorf("faults:\n%s\nwant:\n%s", text, want)
	}
}
