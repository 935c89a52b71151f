// Command serve is the embedded imitation of Redis as a process of its own. Tests
// that ask very much of it start it, built without the race detector, under which
// its Lua is ten times slower.
//
// It prints its URL, and ends with its standard input.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/headgate/headgate/internal/embedded"
)

func main() {
	server, err := embedded.Start(embedded.Options{Miniredis: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, "serve: "+err.Error())
		os.Exit(1)
	}
	defer server.Close()
	fmt.Println(server.URL())
	_, _ = io.Copy(io.Discard, os.Stdin) // however it ends
}
