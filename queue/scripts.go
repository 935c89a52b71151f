package queue

import (
	_ "embed"

	"github.com/headgate/headgate/throttle"
)

//go:embed enqueue.lua
var enqueueLua string

//go:embed enqueue_fresh.lua
var enqueueFreshLua string

//go:embed dispatch.lua
var dispatchLua string

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
