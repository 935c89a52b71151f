package faults

import "time"

// ofReceivers are faults of the receiver, for 10 s. A provider that fails is held back, here for a
// second at first, and longer after each failed try.
var ofReceivers = []scenario{
	received("hangs", "the receiver does not answer for 10 s (the timeout is 2 s)", 400, "/hang", "/release"),
	received("resets", "the receiver reads calls and closes their connections for 10 s", 400, "/fail?n=1000000&status=0", "/fail?n=0"),
	received("trickles", "the receiver answers at a byte a second for 10 s (the timeout is 2 s)", 400, "/trickle?ms=1000", "/trickle?ms=0"),
}

func received(name, fault string, twice int, begin, end string) scenario {
	return scenario{
		name: name, fault: fault, jobs: 1500, struck: true,
		env: []string{"HEADGATE_WEBHOOK_TIMEOUT=2s", "HEADGATE_BREAKER_PAUSE=1s"},
		strike: func(x *show) {
			x.Order(begin)
			time.Sleep(10 * time.Second) // the fault itself
			x.Order(end)
		},
		promise: promise{twice: twice, flows: 15 * time.Second},
	}
}
