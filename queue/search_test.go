package queue

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/golden"
	"github.com/headgate/headgate/internal/test/svg"
	"github.com/headgate/headgate/queue/internal/store"
)

// searching is an adaptive limit of 100 permits a second, and a provider that only refuses what is too much.
type searching struct {
	client redis.UniversalClient
	queue  string
	hidden func(now time.Duration) float64 // what the provider admits, per second
}

const searchedOwn, searchStep = 100.0, 10 * time.Millisecond

// run has the limit used for a time. each gets the rate of the limit at each step, and whether a call was refused.
func (s *searching) run(t *testing.T, last time.Duration, each func(now time.Duration, rate float64, refused bool)) {
	atLevel := store.NewScript(`
local level, next, before = level_at({low = tonumber(ARGV[2]), high = tonumber(ARGV[3])}, tonumber(ARGV[4]))
return {level, next, before or 0}`)
	const pause = 300 * time.Millisecond
	low, high, since, left := int64(1024), int64(1024), int64(-1e9), float64(providerBurst)
	ask := func(now time.Duration) (level, until, before int64) {
		reply, err := atLevel.Run(t.Context(), s.client, store.ScriptKeys(s.queue), s.queue, low, high, now.Microseconds()-since)
		if err != nil {
			t.Fatal(err)
		}
		read := store.Read(reply)
		return read.Int(), since + read.Int(), read.Int()
	}
	var at, until int64
	for now := time.Duration(0); now < last; now += searchStep {
		left = min(left+s.hidden(now)*searchStep.Seconds(), providerBurst)
		if now.Microseconds() >= until {
			at, until, _ = ask(now)
		}
		rate := float64(at) / 1024 * searchedOwn
		refused := left < rate*searchStep.Seconds()
		each(now, rate, refused)
		if !refused {
			left -= rate * searchStep.Seconds()
			continue
		}
		_, _, before := ask(now)
		now += pause
		if before == 0 {
			before = at / 2
		}
		low, high, since, until = max(1, before), at, now.Microseconds(), now.Microseconds()
	}
}

// TestSearch: in a model of a provider with a burst, whatever it admits is found within 20 s, and then used; and what it
// admits later, too, within 30 s if that is less.
func TestSearch(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	used := func(hidden func(time.Duration) float64, from, last time.Duration) (used float64, refusals int) {
		s := searching{r.server.Client(), r.queue, hidden}
		s.run(t, last, func(now time.Duration, rate float64, refused bool) {
			if refused {
				refusals++
			} else if now >= from {
				used += rate * searchStep.Seconds()
			}
		})
		return used / ((last - from).Seconds() * hidden(last)), refusals
	}
	for _, hidden := range []float64{2, 5.5, 13, 25, 37, 50, 71, 94, 99} {
		used, refusals := used(func(time.Duration) float64 { return hidden }, 20*time.Second, time.Minute)
		t.Logf("%.1f/s of %.0f: %.3f used from 20 s to a minute, %d refusals", hidden, searchedOwn, used, refusals)
		if used < 0.95 || refusals > 25 {
			t.Errorf("%.1f/s of %.0f: %.3f used from 20 s to a minute, %d refusals", hidden, searchedOwn, used, refusals)
		}
	}
	// A minute after the last refusal a limit begins to rise, whenever that was.
	for _, test := range []struct {
		was, is     float64
		found, last time.Duration // after the change
	}{
		{90, 2, 30 * time.Second, 90 * time.Second}, {90, 13, 30 * time.Second, 90 * time.Second}, {90, 37, 30 * time.Second, 90 * time.Second}, {90, 70, 30 * time.Second, 90 * time.Second},
		{25, 30, 2 * time.Minute, 4 * time.Minute}, {25, 60, 2 * time.Minute, 4 * time.Minute}, {25, 80, 2 * time.Minute, 4 * time.Minute}, {25, 99, 2 * time.Minute, 4 * time.Minute},
	} {
		least := 1.0
		for after := time.Minute; after < 3*time.Minute; after += 7 * time.Second {
			hidden := func(now time.Duration) float64 {
				if now < after {
					return test.was
				}
				return test.is
			}
			used, _ := used(hidden, after+test.found, after+test.last)
			least = min(least, used)
		}
		if t.Logf("%.0f/s, and then %.0f/s: at least %.3f used %v later", test.was, test.is, least, test.found); least < 0.95 {
			t.Errorf("%.0f/s, and then %.0f/s: only %.3f used %v later", test.was, test.is, least, test.found)
		}
	}
}

// TestSearchIsShown draws how a limit follows a provider that changes what it admits.
func TestSearchIsShown(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1, limitsOf(), nil)
	const left, right, top, bottom, marks = 52, 520, 64, 244, 262
	const last, lowered, raised = 5 * time.Minute, time.Minute, 2 * time.Minute
	hidden := func(now time.Duration) float64 {
		switch {
		case now < lowered:
			return 70
		case now < raised:
			return 25
		default:
			return 60
		}
	}
	x := func(at time.Duration) float64 { return left + (right-left)*at.Seconds()/last.Seconds() }
	y := func(rate float64) float64 { return bottom - (bottom-top)*rate/searchedOwn }
	var path, refusals strings.Builder
	before, first, refused := -1.0, 0, 0
	s := searching{r.server.Client(), r.queue, hidden}
	s.run(t, last, func(now time.Duration, rate float64, no bool) {
		if rate != before {
			fmt.Fprintf(&path, "H%sV%s", svg.Px(x(now)), svg.Px(y(rate)))
			before = rate
		}
		if no {
			fmt.Fprintf(&refusals, "M%s %dv12", svg.Px(x(now)), marks)
			if refused++; now < lowered {
				first++
			}
		}
	})
	sheet := svg.New(640, 330, "A limit of 100/s, and a provider that admits less", fmt.Sprintf(
		"The provider admits 70 calls a second, from the first minute on 25, and from the second on 60. The limit comes to each of them after some refusals, %d in the first minute and %d in all of the five.", first, refused))
	sheet.Line(`<text class="dim" x="12" y="46">calls a second</text>`)
	for rate := 0.0; rate <= searchedOwn; rate += 20 {
		sheet.Line(`<path class="grid" d="M%d %sH%d"/><text class="dim end" x="%d" y="%d">%.0f</text>`, left, svg.Px(y(rate)), right, left-8, int(y(rate))+4, rate)
	}
	for at := time.Duration(0); at <= last; at += time.Minute {
		sheet.Line(`<path class="grid" d="M%s %dV%d"/><text class="dim mid" x="%s" y="296">%.0f</text>`, svg.Px(x(at)), bottom, marks+14, svg.Px(x(at)), at.Minutes())
	}
	sheet.Line(`<text class="dim mid" x="%d" y="318">minutes</text>`, (left+right)/2)
	sheet.Line(`<path class="came" d="M%d %sH%sV%sH%sV%sH%d"/>`, left, svg.Px(y(70)), svg.Px(x(lowered)), svg.Px(y(25)), svg.Px(x(raised)), svg.Px(y(60)), right)
	sheet.Line(`<path class="went" d="M%d %d%sH%d"/>`, left, top, path.String(), right)
	sheet.Line(`<path class="no" d="%s"/>`, refusals.String())
	sheet.Line(`<text class="dim" x="%d" y="%d">the provider</text><text class="tw" x="%d" y="%d">the limit</text><text class="tn" x="%d" y="%d">refused</text>`,
		right+8, int(y(60))-8, right+8, int(y(60))+14, right+8, marks+10)
	golden.File(t, filepath.Join("..", "docs", "adaptive.svg"), string(sheet.Bytes()))
}
