// Package store defines how Headgate stores a queue in Redis: the names of its keys, the
// text formats of their values, and the Lua libraries that its scripts share.
// docs/redis.md describes all of it.
package store

import (
	"slices"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/redisscript"
	"github.com/headgate/headgate/queue/internal/asynqwire"
)

// planned has the libraries of all scripts with planned writes.
var planned = []string{Lua("plan"), asynqwire.Lua, Lua("formats"), Lua("lanes")}

// NewScript returns a script whose body reads, decides and plans writes, which are
// performed when it returns (plan.lua). What the body uses of the libraries comes before
// it.
func NewScript(body string, libraries ...string) *redisscript.Script {
	return limitlua.NewScript("return finish(function()\n"+body+"\nend)\n", slices.Concat(planned, libraries)...)
}

// Key returns the name of one of Headgate's keys for a queue; see lanes.lua for all of
// them.
func Key(queue, name string) string { return "headgate:{" + queue + "}:" + name }

// ScriptKeys returns the KEYS of a script, which select the slot of a Cluster. The
// scripts build the other keys of the same slot themselves, as those of asynq do.
//
// The second key never exists. While the slot moves to another node, it makes both nodes reply
// TRYAGAIN: otherwise a script would run on the new one, where the keys that it does not declare have
// not all arrived.
func ScriptKeys(queue string) []string { return KeysOf(queue, Key(queue, "waiting")) }

// KeysOf returns the KEYS of a script whose first one is another key of the queue.
func KeysOf(queue, first string) []string { return []string{first, Key(queue, "never")} }
