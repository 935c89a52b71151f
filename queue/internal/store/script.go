// Package store knows how Headgate lays out a queue in Redis: the names of its keys, the text
// formats of their values, and the Lua libraries that its scripts share. docs/redis.md
// describes all of it.
package store

import (
	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/redisscript"
	"github.com/headgate/headgate/queue/internal/asynqwire"
)

// NewScript makes a script of a body that reads, decides and plans its writes, which are
// made when it returns (plan.lua), behind what it uses of libraries.
func NewScript(body string, libraries ...string) *redisscript.Script {
	return limitlua.NewScript("return finish(function()\n"+body+"\nend)\n", append([]string{Lua("plan"), asynqwire.Lua, Lua("formats"), Lua("lanes")}, libraries...)...)
}

// Key is the name of one of our keys for a queue; see lanes.lua for all of them.
func Key(queue, name string) string { return "headgate:{" + queue + "}:" + name }

// ScriptKeys names the slot of a Cluster; the scripts build the other keys of
// the same slot themselves, as asynq's do.
func ScriptKeys(queue string) []string { return []string{Key(queue, "waiting")} }
