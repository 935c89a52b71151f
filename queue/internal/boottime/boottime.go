// Package boottime is the clock by which calls leave: one that no change of the wall clock moves.
package boottime

import "time"

var start = time.Now()
