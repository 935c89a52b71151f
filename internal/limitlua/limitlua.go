// Package limitlua has what Go and Lua share about limits: the library limits.lua, the [Spec]
// that describes a limit to it, and the format of its buckets in Redis.
package limitlua

import (
	_ "embed"

	"github.com/headgate/headgate/internal/redisscript"
)

//go:embed limits.lua
var limitsLua string

// NewScript returns a script that can use limits.lua and other libraries.
func NewScript(body string, libraries ...string) *redisscript.Script {
	return redisscript.New(body, append([]string{limitsLua}, libraries...)...)
}
