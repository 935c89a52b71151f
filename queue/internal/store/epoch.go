package store

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// EpochField is the field of a queue's limits that says when they were first published in this
// Redis, by which workers notice that what they knew is gone.
const EpochField = "epoch"

// NewEpoch returns its value for limits that are not in Redis. lost: they were before, and what was
// used of them is lost.
func NewEpoch(now time.Time, lost bool) string {
	empty := int64(0)
	if lost {
		empty = now.UnixMicro()
	}
	return fmt.Sprintf("%d %d", now.UnixMicro(), empty)
}

// LostAt returns since when the buckets of limits that are not in Redis count as empty, in µs since
// the epoch of Unix; 0: never.
func LostAt(text string) int64 {
	_, empty, _ := strings.Cut(text, " ")
	at, err := strconv.ParseInt(empty, 10, 64)
	if err != nil {
		return 0
	}
	return at
}
