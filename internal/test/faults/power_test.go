package faults

import (
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
)

// ofPower are power cuts of the machine of Redis: it loses what it had written and not synced.
var ofPower = []scenario{
	{
		name: "power-always", fault: "power cut of Redis, `appendfsync always`", quick: true,
		jobs: 600, start: func(x *show) *redistest.Server { return redistest.Synced(x.T, "--appendfsync", "always") },
		strike:  (*show).powerCut,
		promise: promise{used: 0.5},
	},
	{
		// What the last two seconds wrote may be gone: Redis puts off a write for a second if the sync
		// before it takes that long. Jobs that were acknowledged in that time may be lost, and calls may
		// be made again.
		name: "power-everysec", fault: "power cut of Redis, `appendfsync everysec`",
		jobs: 600, start: func(x *show) *redistest.Server { return redistest.Synced(x.T, "--appendfsync", "everysec") },
		strike:  (*show).powerCut,
		promise: promise{forgets: 2 * time.Second, lost: 2 * pouredPerSecond, twice: 200, used: 0.5},
	},
}

func (x *show) powerCut() {
	dropped := x.Redis.PowerCut()
	x.T.Logf("%d bytes were dropped", dropped)
	// The fault itself: no machine starts in less. A Redis that was back sooner without its last writes would give slots
	// again that workers still hold.
	time.Sleep(500 * time.Millisecond)
	x.Redis.Restart()
}
