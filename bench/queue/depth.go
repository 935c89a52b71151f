package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// level is a queue with a backlog that stays as large as it is: as many jobs come as go.
type level struct {
	name           string
	waiting, lanes int
	limits         []limit
}

const levelRate = 500 // calls a second

func (l level) queue() string { return fmt.Sprintf("level-%d-%d", l.waiting, l.lanes) }

var levelColumns = []figure{perSecond, commands, scripts, redisCPU, scriptCPU, workerCPU, netBytes, dispatchP99, scriptP99}

func waiting() workload {
	w := workload{name: "waiting", about: "one tenant at 500/s: 10³ to 10⁶ jobs wait, and as many come, one by one, as go", columns: levelColumns}
	var levels []level
	for _, n := range []struct {
		name string
		jobs int
	}{{"10³ waiting", 1000}, {"10⁴ waiting", 10_000}, {"10⁵ waiting", 100_000}, {"10⁶ waiting", 1_000_000}} {
		levels = append(levels, level{n.name, n.jobs, 1, []limit{tenantLimit(levelRate)}})
	}
	w.add(levels)
	w.targets = append(w.targets,
		atMost("10⁴ waiting", commands, 24),
		atMost("10⁴ waiting", redisCPU, 60),
		atLeast("10⁶ waiting", perSecond, 0.95).times("10³ waiting"),
		atMost("10⁶ waiting", redisCPU, 1.05).times("10³ waiting"),
	)
	return w
}

// hundredThousandLanes is a level that the page is read at, too.
var hundredThousandLanes = level{"10⁵ lanes", 200_000, 100_000, laneLimits}

var laneLimits = []limit{sharedRate(levelRate), tenantLimit(100)}

func lanes() workload {
	w := workload{name: "lanes", about: "tenants at 100/s under a shared 500/s: 200,000 jobs wait in 10 to 10⁵ lanes, and as many come, one by one, as go", columns: levelColumns}
	w.add([]level{{"10 lanes", 200_000, 10, laneLimits}, {"10³ lanes", 200_000, 1000, laneLimits}, hundredThousandLanes})
	w.targets = append(w.targets,
		atLeast("10⁵ lanes", perSecond, 0.85).times("10³ lanes"),
		atMost("10⁵ lanes", redisCPU, 1.15).times("10³ lanes"),
	)
	return w
}

// add measures levels, all of which are in Redis at once.
func (w *workload) add(levels []level) {
	w.prepare = func(ctx context.Context, b *bench) error {
		return b.prepare(ctx, levels...)
	}
	for _, l := range levels {
		w.entries = append(w.entries, entry{l.name, func(ctx context.Context, b *bench, _ map[string]sample) (sample, error) {
			return b.keepLevel(ctx, l)
		}})
		w.targets = append(w.targets, atMost(l.name, dispatchP99, 5))
	}
}

// prepare fills queues, which have the same limits, with as many jobs as wait in them.
func (b *bench) prepare(ctx context.Context, levels ...level) error {
	var queues []string
	for _, l := range levels {
		queues = append(queues, l.queue())
	}
	if err := publish(ctx, b.admin, levels[0].limits, queues...); err != nil {
		return err
	}
	for _, l := range levels {
		if err := b.fill(ctx, headgate, l.queue(), b.scaled(l.waiting), b.scaled(l.lanes)); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) keepLevel(ctx context.Context, l level) (sample, error) {
	s := sample{}
	u, err := b.whileSending(ctx, l, func() error {
		return b.within(ctx, s, func() error { return pause(ctx, b.lasting(6*time.Second)) })
	})
	if err != nil {
		return nil, err
	}
	s[workerCPU] = micros(u.CPU) / float64(u.Calls)
	s[dispatchP99] = percentile(u.Dispatch, 0.99)
	return s, nil
}

// within measures what Redis does for each call while do runs.
func (b *bench) within(ctx context.Context, s sample, do func() error) error {
	b.receiver.take()                                          // calls before this moment do not count
	if err := b.admin.ConfigResetStat(ctx).Err(); err != nil { // for the percentile
		return err
	}
	before, err := b.spent(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := do(); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := b.spent(ctx)
	if err != nil {
		return err
	}
	_, n := b.receiver.take()
	if n == 0 {
		return fmt.Errorf("no calls within %v", took)
	}
	s[perSecond] = float64(n) / took.Seconds()
	after.minus(before).perJob(s, n)
	s[scriptP99], err = b.scriptP99(ctx)
	return err
}

// whileSending does something while a worker sends and as many jobs come as go. It says
// what the worker used in all.
func (b *bench) whileSending(ctx context.Context, l level, do func() error) (usage, error) {
	b.receiver.take()
	workers, err := startTeam(1, task{Contender: headgate, Redis: b.server.Addr(), Queues: []string{l.queue()}, Receiver: b.receiver.url})
	if err != nil {
		return usage{}, err
	}
	defer workers.kill()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fed := make(chan error, 1)
	go func() { fed <- b.feed(ctx, l) }()
	if b.receiver.wait(ctx, "", min(50, b.scaled(1000)), time.Minute) {
		err = do()
	} else {
		err = fmt.Errorf("no calls while %d jobs wait", b.scaled(l.waiting))
	}
	cancel()
	if err := errors.Join(err, <-fed); err != nil {
		return usage{}, err
	}
	return workers.stop(false)
}

// feed enqueues as many jobs as go, one by one.
func (b *bench) feed(ctx context.Context, l level) error {
	enqueue := newEnqueuer(headgate, b.admin)
	began := time.Now()
	for n := 0; ; n++ {
		if pause(ctx, time.Until(began.Add(time.Duration(n)*time.Second/levelRate))) != nil {
			return nil
		}
		// To its end, or it would not be known whether the job was enqueued.
		if err := enqueue(context.WithoutCancel(ctx), l.queue(), payload{Tenant: tenantName(n % b.scaled(l.lanes))}); err != nil {
			return err
		}
	}
}
