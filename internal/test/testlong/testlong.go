// Package testlong says how much tests do: make test-long runs them at full length.
package testlong

import (
	"flag"
	"os"
)

// On reports whether the long tests run: HEADGATE_TEST_LONG is set.
func On() bool { return os.Getenv("HEADGATE_TEST_LONG") != "" }

// Of returns how much a test does: full if the long tests run.
func Of(short, full int) int {
	if On() {
		return full
	}
	return short
}

// SameCases makes rapid draw the same cases each time, unless the long tests run. A TestMain
// calls it.
func SameCases() {
	if On() {
		return
	}
	if err := flag.Set("rapid.seed", "1"); err != nil {
		panic(err)
	}
}
