package queuetest

import "time"

// DrainAtMost shortens the time that a Drain may take.
func (q *Queue) DrainAtMost(d time.Duration) { q.longest = d }
