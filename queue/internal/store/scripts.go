package store

import (
	"embed"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/redisscript"
	"github.com/headgate/headgate/queue/internal/asynqwire"
)

//go:embed *.lua
var texts embed.FS

// Lua returns the text of a script or library in this folder.
func Lua(name string) string {
	text, err := texts.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // the name is wrong
	}
	return string(text)
}

// The scripts that move jobs, and those of calls without a job.
var (
	EnqueueScript   = limitlua.NewScript(Lua("enqueue_fresh"), asynqwire.Lua, Lua("formats"), Lua("lanes")).Else(NewScript(Lua("enqueue")))
	DispatchScript  = NewScript(Lua("dispatch"), asynqwire.MessageLua, Lua("hand"), Lua("lead")).AllowOOM()
	SlotScript      = NewScript(Lua("slot"), Lua("record")).AllowOOM()
	DirectScript    = NewScript(Lua("direct"), Lua("record")).AllowOOM()
	DirectEndScript = NewScript(Lua("direct_end"), Lua("record")).AllowOOM()
	SettleScript    = NewScript(Lua("settle"), asynqwire.MessageLua, Lua("record"), Lua("end")).AllowOOM()
	RecoverScript   = NewScript(Lua("recover"), Lua("record")).AllowOOM()
	WatchScript     = limitlua.NewScript(Lua("watch"), asynqwire.Lua).AllowOOM()
	AskScript       = NewScript(Lua("lease_ask"), Lua("leases")).AllowOOM()
	AskIdleScript   = limitlua.NewScript(Lua("lease_idle"), asynqwire.Lua, Lua("idle"))
	GrantScript     = NewScript(Lua("lease_grant"), Lua("leases")).AllowOOM()
	LedgerScript    = NewScript(Lua("ledger")).AllowOOM()
	LateScript      = NewScript(Lua("late"), Lua("record"), Lua("end")).AllowOOM()
	ResignScript    = limitlua.NewScript(Lua("resign"))

	DispatchIdleScript = limitlua.NewScript(Lua("dispatch_idle"), asynqwire.Lua, Lua("idle"))

	JanitorScript  = NewScript(Lua("janitor"), asynqwire.MessageLua).AllowOOM()
	ArchiveScript  = NewScript(Lua("archive")).AllowOOM()
	ProgressScript = NewScript(Lua("progress"))
	SweepScript    = NewScript(Lua("sweep")).AllowOOM()
)

// The scripts that count calls for conformance.
var (
	CallsScript       = NewScript(Lua("calls")).AllowOOM()
	ConformanceScript = NewScript(Lua("conformance"))
)

// The outcomes in events that only CallsScript reads: of a call without a job, and of a run whose worker died.
const (
	Direct = "direct"
	Lost   = "lost"
)

// EnqueueOwedScript is EnqueueScript for follow-ups, which also runs if Redis is full. Redis does not
// grow by them: a follow-up is stored with its job until then, and that job ends once it is enqueued.
var EnqueueOwedScript = EnqueueScript.AllowOOM()

// The scripts of periodic jobs. They concern all queues together, except the one that
// enqueues.
var (
	PeriodicSetScript    = limitlua.NewScript(Lua("periodic_set"))
	PeriodicLookScript   = limitlua.NewScript(Lua("periodic_look"), Lua("periodic"))
	PeriodicChooseScript = limitlua.NewScript(Lua("periodic_choose"), Lua("periodic"))
	PeriodicMarkScript   = limitlua.NewScript(Lua("periodic_mark"), Lua("periodic"))
	PeriodicFireScript   = NewScript("local ARGV = ARGV\nlocal function enqueue_jobs()\n"+Lua("enqueue")+"\nend\n"+Lua("periodic_fire"),
		Lua("record"), Lua("end"), asynqwire.MessageLua, Lua("cancel"))
)

// The scripts of tenants that move to another partition of their queue.
var (
	MoveScript     = NewScript(Lua("move")).AllowOOM()
	MoveOutScript  = NewScript(Lua("move_out"), Lua("record"), Lua("end"), asynqwire.MessageLua, Lua("cancel")).AllowOOM()
	MoveInScript   = NewScript(Lua("move_in"))
	MoveWithScript = NewScript(Lua("move_with"))
	MoveDoneScript = NewScript(Lua("move_done")).AllowOOM()
)

// The scripts of operators and of the dashboard.
var (
	ExplainScript = NewScript(Lua("explain"))
	GaugesScript  = NewScript(Lua("gauges"))
	LevelsScript  = NewScript(Lua("levels"))
	JobsScript    = NewScript(Lua("jobs"), asynqwire.MessageLua)
	VerbsScript   = NewScript(Lua("verbs"), Lua("record"), Lua("end"), asynqwire.MessageLua, Lua("cancel")).AllowOOM()
	PauseScript   = NewScript(Lua("pause")).AllowOOM()

	UnregisterScript = NewScript(Lua("unregister")).AllowOOM()
)

// Scripts has all scripts by the names of their files.
var Scripts = map[string]*redisscript.Script{
	"enqueue": EnqueueOwedScript, "dispatch": DispatchScript, "slot": SlotScript, "direct": DirectScript, "direct_end": DirectEndScript, "settle": SettleScript, "recover": RecoverScript,
	"watch": WatchScript, "lease_ask": AskScript, "lease_idle": AskIdleScript, "dispatch_idle": DispatchIdleScript, "lease_grant": GrantScript, "ledger": LedgerScript, "late": LateScript, "resign": ResignScript, "janitor": JanitorScript, "archive": ArchiveScript, "sweep": SweepScript, "progress": ProgressScript,
	"calls": CallsScript, "conformance": ConformanceScript,
	"periodic_set": PeriodicSetScript, "periodic_look": PeriodicLookScript, "periodic_choose": PeriodicChooseScript,
	"periodic_mark": PeriodicMarkScript, "periodic_fire": PeriodicFireScript,
	"explain": ExplainScript, "gauges": GaugesScript, "levels": LevelsScript, "jobs": JobsScript, "verbs": VerbsScript, "pause": PauseScript, "unregister": UnregisterScript,
	"move": MoveScript, "move_out": MoveOutScript, "move_in": MoveInScript, "move_with": MoveWithScript, "move_done": MoveDoneScript,
}
