// Package limitlua is what Go and Lua share about limits: the library limits.lua, the
// [Spec] that tells it what a limit is, and the buckets that it leaves in Redis.
package limitlua

import (
	_ "embed"

	"github.com/headgate/headgate/internal/redisscript"
)

//go:embed limits.lua
var limitsLua string

// NewScript returns a script that may use limits.lua and more libraries.
func NewScript(body string, libraries ...string) *redisscript.Script {
	return redisscript.New(body, append([]string{limitsLua}, libraries...)...)
}
