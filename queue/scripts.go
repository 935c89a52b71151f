package queue

import (
	_ "embed"
	"fmt"

	"github.com/headgate/headgate/throttle"
)

//go:embed plan.lua
var planLua string

//go:embed lanes.lua
var lanesLua string

//go:embed enqueue.lua
var enqueueLua string

//go:embed enqueue_fresh.lua
var enqueueFreshLua string

//go:embed dispatch.lua
var dispatchLua string

//go:embed record.lua
var recordLua string

//go:embed end.lua
var endLua string

//go:embed hand.lua
var handLua string

//go:embed janitor.lua
var janitorLua string

//go:embed slot.lua
var slotLua string

//go:embed settle.lua
var settleLua string

//go:embed recover.lua
var recoverLua string

//go:embed watch.lua
var watchLua string

//go:embed late.lua
var lateLua string

//go:embed sweep.lua
var sweepLua string

//go:embed periodic.lua
var periodicLua string

//go:embed periodic_set.lua
var periodicSetLua string

//go:embed periodic_look.lua
var periodicLookLua string

//go:embed periodic_choose.lua
var periodicChooseLua string

//go:embed periodic_mark.lua
var periodicMarkLua string

//go:embed periodic_fire.lua
var periodicFireLua string

//go:embed asynq.lua
var asynqLua string

//go:embed message.lua
var messageLua string

var (
	enqueueScript  = throttle.NewScript(enqueueFreshLua, asynqLua, lanesLua).Else(newScript(enqueueLua))
	dispatchScript = newScript(dispatchLua, messageLua, handLua, leadLua).AllowOOM()
	slotScript     = newScript(slotLua, recordLua).AllowOOM()
	settleScript   = newScript(settleLua, messageLua, recordLua, endLua).AllowOOM()
	recoverScript  = newScript(recoverLua, recordLua)
	watchScript    = newScript(watchLua)
	lateScript     = newScript(lateLua, recordLua, endLua)
	sweepScript    = newScript(sweepLua)
	janitorScript  = newScript(janitorLua, messageLua).AllowOOM()
)

// Periodic jobs, of all queues together but for the one that enqueues.
var (
	periodicSetScript    = throttle.NewScript(periodicSetLua)
	periodicLookScript   = throttle.NewScript(periodicLookLua, periodicLua)
	periodicChooseScript = throttle.NewScript(periodicChooseLua, periodicLua)
	periodicMarkScript   = throttle.NewScript(periodicMarkLua, periodicLua)
	periodicFireScript   = newScript("local ARGV = ARGV\nlocal function enqueue_jobs()\n" + enqueueLua + "\nend\n" + periodicFireLua)
)

// newScript makes a script of a body that reads, decides and plans its writes, which are
// made when it returns (plan.lua), behind what it uses of libraries.
func newScript(body string, libraries ...string) *throttle.Script {
	return throttle.NewScript("return finish(function()\n"+body+"\nend)\n", append([]string{planLua, asynqLua, lanesLua}, libraries...)...)
}

// key is the name of one of our keys for a queue; see lanes.lua for all of them.
func key(queue, name string) string { return "headgate:{" + queue + "}:" + name }

// scriptKeys names the slot of a Cluster; the scripts build the other keys of
// the same slot themselves, as asynq's do.
func scriptKeys(queue string) []string { return []string{key(queue, "waiting")} }

// numbers reads a reply of integers.
func numbers(reply any, n int) ([]int64, error) {
	values, ok := reply.([]any)
	if !ok || len(values) < n {
		return nil, fmt.Errorf("unexpected reply %v", reply)
	}
	out := make([]int64, len(values))
	for i, value := range values {
		switch v := value.(type) {
		case int64:
			out[i] = v
		case string:
			if _, err := fmt.Sscan(v, &out[i]); err != nil {
				return nil, fmt.Errorf("unexpected reply %q: %w", v, err)
			}
		default:
			return nil, fmt.Errorf("unexpected reply %v", reply)
		}
	}
	return out, nil
}
