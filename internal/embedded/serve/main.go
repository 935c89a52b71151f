// Command serve is the embedded imitation of Redis as a process of its own. Tests
// that ask very much of it start it, built without the race detector, under which
// its Lua is ten times slower.
package main

import (
	"os"

	"github.com/headgate/headgate/internal/embedded"
)

func main() {
	embedded.Serve(os.Stdin, os.Stdout, 0)
}
