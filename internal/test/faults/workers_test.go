package faults

import (
	"syscall"
	"time"
)

// ofWorkers are faults of worker processes.
var ofWorkers = []scenario{
	{
		name: "kill-one", fault: "kill -9 of one of two workers, 1,000 calls under way",
		rate: 200, latency: 5 * time.Second, jobs: 4500,
		strike:  func(x *show) { x.kill(0) },
		promise: promise{twice: 1000, again: 15 * time.Second, used: 0.5},
	},
	{
		name: "kill-all", fault: "kill -9 of all workers, 1,000 calls under way; two new ones start",
		rate: 200, latency: 5 * time.Second, jobs: 4500,
		strike: func(x *show) {
			x.kill(0)
			x.kill(1)
			x.heal()
			x.Worker()
			x.Worker()
		},
		promise: promise{twice: 1100, again: 15 * time.Second, used: 0.5},
	},
	{
		name: "kill-short", fault: "kill -9 of one of two workers, calls take 10 ms",
		jobs: 500, latency: 10 * time.Millisecond,
		strike:  func(x *show) { x.kill(0) },
		promise: promise{twice: 20, again: 15 * time.Second, used: 0.5},
	},
	stopped(10*time.Second, 20),
	stopped(40*time.Second, 20),
	stopped(120*time.Second, 20),
}

func (x *show) kill(i int) {
	x.Workers[i].Signal(syscall.SIGKILL)
	<-x.Workers[i].Done
}

func stopped(length time.Duration, twice int) scenario {
	return scenario{
		name: "stop-" + length.String(), fault: "SIGSTOP of one of two workers for " + length.String(),
		jobs: 100*int(length.Seconds()) + 1000, latency: 50 * time.Millisecond,
		strike: func(x *show) {
			x.Workers[0].Signal(syscall.SIGSTOP)
			time.Sleep(length) // the fault itself
			x.Workers[0].Signal(syscall.SIGCONT)
		},
		promise: promise{twice: twice, used: 0.8},
	}
}
