// Package boottime is the clock by which calls leave. Changes of the wall clock do not
// move it.
package boottime

import "time"

var start = time.Now()
