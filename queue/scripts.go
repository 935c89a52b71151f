package queue

import (
	_ "embed"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
)

//go:embed enqueue.lua
var enqueueLua string

//go:embed enqueue_fresh.lua
var enqueueFreshLua string

//go:embed dispatch.lua
var dispatchLua string

//go:embed hand.lua
var handLua string

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
	enqueueScript  = limitlua.NewScript(enqueueFreshLua, asynqwire.Lua, store.FormatsLua, store.LanesLua).Else(store.NewScript(enqueueLua))
	dispatchScript = store.NewScript(dispatchLua, asynqwire.MessageLua, handLua, leadLua).AllowOOM()
	slotScript     = store.NewScript(slotLua, store.RecordLua).AllowOOM()
	settleScript   = store.NewScript(settleLua, asynqwire.MessageLua, store.RecordLua, store.EndLua).AllowOOM()
	recoverScript  = store.NewScript(recoverLua, store.RecordLua)
	watchScript    = store.NewScript(watchLua)
	lateScript     = store.NewScript(lateLua, store.RecordLua, store.EndLua)
)

// Periodic jobs, of all queues together but for the one that enqueues.
var (
	periodicSetScript    = limitlua.NewScript(periodicSetLua)
	periodicLookScript   = limitlua.NewScript(periodicLookLua, periodicLua)
	periodicChooseScript = limitlua.NewScript(periodicChooseLua, periodicLua)
	periodicMarkScript   = limitlua.NewScript(periodicMarkLua, periodicLua)
	periodicFireScript   = store.NewScript("local ARGV = ARGV\nlocal function enqueue_jobs()\n" + enqueueLua + "\nend\n" + periodicFireLua)
)
