package queue

import (
	"time"

	"github.com/headgate/headgate/internal/partition"
)

// Partitions are looked at one by one, so an idle queue costs Redis the more the more of them it has.
// From many on, a worker looks less often where nothing happens: what it has to see at once is announced,
// and the rest, such as an announcement that was lost, may wait for another second.
const (
	manyPartitions = 17

	slowDispatch = 2 * time.Second // shorter than leadLasts
	slowLook     = 2 * time.Second // shorter than slowWatch, which is at most maxRole
	slowWatch    = maxRole
	slowChores   = 15 * time.Second

	// longestRest is for how long an idle partition is only asked whether it still is: its clock may be set.
	longestRest = time.Minute
)

// slowed returns how long to wait between two looks at a partition of a queue: usually, or if it is one of
// many.
func slowed(of partition.Layout, usual, slow time.Duration) time.Duration {
	if of.N >= manyPartitions {
		return max(usual, slow)
	}
	return usual
}
