package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/svg"
	"github.com/headgate/headgate/throttle"
)

// sides is the plot of jobs and of calls without a job that share a limit, once without and once with a reserve.
type sides struct {
	title      string
	kept       bool
	jobs, went []time.Duration // when they go
	came       []time.Duration // the calls
}

const (
	sidesLast = 2 * time.Second
	// How far ahead jobs get slots, when dispatch gives them more, and how far ahead calls get theirs.
	jobsAhead, jobsLeft, callsAhead = 150 * time.Millisecond, 75 * time.Millisecond, 85 * time.Millisecond
)

// callsCome is when calls come: one now and then, and ten at once.
func callsCome() (at []time.Duration) {
	for i := range 4 {
		at = append(at, time.Duration(100+180*i)*time.Millisecond)
	}
	for range 10 {
		at = append(at, time.Second)
	}
	return at
}

// play runs a backlog of jobs and calls that wait for up to a second, in steps of 5 ms.
func (s *sides) play(ctx context.Context, client *redis.Client) error {
	begin := time.Unix(1_800_000_000, 0)
	now := begin.Add(-3 * time.Second) // by the first call, jobs have used what they may save up
	all, err := throttle.New(client, fmt.Sprintf("sides:%v", s.kept),
		throttle.Limit{Name: "account", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(50)},
		throttle.Limit{Name: "jobs", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(30), Burst: 9})
	if err != nil {
		return err
	}
	calls, err := all.WithClock(func() time.Time { return now }).Only("account")
	if err != nil {
		return err
	}
	jobs := calls
	if s.kept {
		jobs = all.WithClock(func() time.Time { return now })
	}
	reserve := func(of *throttle.Limiter, within time.Duration, into *[]time.Duration) (went bool, at time.Duration, err error) {
		r, err := of.Reserve(ctx, 1, within, "k")
		if err != nil {
			return false, 0, err
		}
		if at = now.Sub(begin) + r.Delay; r.Allowed {
			*into = append(*into, at)
		}
		return r.Allowed, at, nil
	}
	s.came = callsCome()
	waiting := s.came
	next := now.Sub(begin) // when the next job could go, as far as dispatch knows
	for ; now.Sub(begin) <= sidesLast; now = now.Add(5 * time.Millisecond) {
		if len(waiting) > 0 && waiting[0] <= now.Sub(begin) {
			// The calls of a process stand in line.
			if went, _, err := reserve(calls, callsAhead, &s.went); err != nil {
				return err
			} else if went {
				waiting = waiting[1:]
			}
		}
		for more := next <= now.Sub(begin)+jobsLeft; more; {
			if more, next, err = reserve(jobs, jobsAhead, &s.jobs); err != nil {
				return err
			}
		}
	}
	return nil
}

// slowest returns how long the calls wait at most.
func (s *sides) slowest() (most time.Duration) {
	for i, at := range s.went {
		most = max(most, at-s.came[i])
	}
	return most
}

// sidesSVG draws when jobs and calls go, one row for each.
func sidesSVG(plots []*sides) []byte {
	const first, row, rows = 76, 34, 88
	title := "Jobs and calls without a job under 50 per second"
	var says []string
	for _, s := range plots {
		says = append(says, fmt.Sprintf("%s: the %d calls wait at most %d ms.", s.title, len(s.went), s.slowest().Milliseconds()))
	}
	sheet := svg.New(width, first+2*rows, title, fmt.Sprintf(`There is always a job that could go. Four calls come one after the other, and ten at once after a second. %s`, strings.Join(says, " ")))
	line := sheet.Line
	ticks := func(class string, at []time.Duration, y int) {
		var path strings.Builder
		for _, moment := range at {
			if moment >= 0 && moment <= sidesLast {
				fmt.Fprintf(&path, "M%s %dv16", svg.Px(left+float64(right-left)*moment.Seconds()/sidesLast.Seconds()), y-12)
			}
		}
		line(`<path class="%s" d="%s"/>`, class, path.String())
	}
	for i, s := range plots {
		y := first + i*rows
		line(`<text class="dim" x="12" y="%d">%s</text>`, y-22, s.title)
		ticks("came", s.jobs, y)
		line(`<text class="dim" x="%d" y="%d">jobs go</text>`, right+8, y)
		ticks("went", s.went, y+row)
		line(`<text class="tw" x="%d" y="%d">calls go</text><text class="dim" x="%d" y="%d">%d ms at most</text>`, right+8, y+row-8, right+8, y+row+8, s.slowest().Milliseconds())
	}
	axis := first + len(plots)*rows - 20
	for ms := 0; ms <= int(sidesLast.Milliseconds()); ms += 500 {
		line(`<text class="dim mid" x="%s" y="%d">%.1f s</text>`, svg.Px(left+float64(right-left)*float64(ms)/float64(sidesLast.Milliseconds())), axis, float64(ms)/1000)
	}
	return sheet.Bytes()
}

// playSides makes both plots.
func playSides(ctx context.Context, client *redis.Client) ([]byte, error) {
	plots := []*sides{{title: "Without a reserve"}, {title: "With reserve: {direct: 40%}", kept: true}}
	for _, s := range plots {
		if err := s.play(ctx, client); err != nil {
			return nil, fmt.Errorf("%s: %w", s.title, err)
		}
	}
	return sidesSVG(plots), nil
}
