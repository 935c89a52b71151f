// Package testlong reports whether tests run at full length.
package testlong

import "os"

// On reports whether the long tests run: HEADGATE_TEST_LONG is set.
func On() bool { return os.Getenv("HEADGATE_TEST_LONG") != "" }
