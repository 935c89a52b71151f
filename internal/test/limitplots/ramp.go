package main

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/svg"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// playRamp draws what a ramp admits on each day, for a sender of whose mail little is rejected, and for one that is held
// back for a while.
func playRamp(context.Context, *redis.Client) ([]byte, error) {
	const day, last = 24 * time.Hour, 40
	const heldFrom, heldUntil = 8, 14
	const from, to = 50, 20_000
	ramp := limits.Ramp{From: throttle.Rate{Count: from, Period: day}, Over: 30 * day}
	x := func(n int) float64 { return left + float64(right-left)*float64(n)/last }
	y := func(mails int64) float64 {
		return bottom - float64(bottom-top)*math.Log(float64(mails)/from)/math.Log(float64(to)/from)
	}
	path := func(class string, held int) string {
		var d strings.Builder
		for n := range last {
			grown := n - min(max(n-heldFrom, 0), held)
			fmt.Fprintf(&d, "%c%s %sH%s", "ML"[min(n, 1)], svg.Px(x(n)), svg.Px(y(ramp.At(time.Duration(grown)*day, to))), svg.Px(x(n+1)))
		}
		return fmt.Sprintf(`<path class="%s" d="%s"/>`, class, d.String())
	}
	title := "A ramp from 50 mails a day to 20,000 over 30 days"
	sheet := svg.New(width, height, title, fmt.Sprintf(`Each day admits 1.22 times as many mails as the day before: %d on the first day, %d after a week, %d after two, 20000 from the 31st day on. A sender whose mails are rejected from the 9th to the 14th day has %d mails on each of these days, and grows on after that, six days later.`,
		ramp.At(0, to), ramp.At(7*day, to), ramp.At(14*day, to), ramp.At(heldFrom*day, to)))
	line := sheet.Line
	line(`<text class="dim" x="12" y="46">mails a day</text>`)
	for _, mails := range []int64{50, 200, 1000, 5000, 20_000} {
		line(`<path class="grid" d="M%d %sH%d"/><text class="dim end" x="%d" y="%d">%d</text>`, left, svg.Px(y(mails)), right, left-8, int(y(mails))+4, mails)
	}
	for n := 0; n <= last; n += 10 {
		line(`<path class="grid" d="M%s %dV%d"/><text class="dim mid" x="%s" y="296">%d</text>`, svg.Px(x(n)), bottom, marks+14, svg.Px(x(n)), n)
	}
	line(`<text class="dim mid" x="%d" y="318">days since the first mail</text>`, (left+right)/2)
	line("%s", path("went", 0))
	line("%s", path("no", heldUntil-heldFrom))
	line(`<text class="tw" x="%d" y="%d">few rejected</text>`, right+8, int(y(to))+4)
	line(`<text class="tn" x="%d" y="%d">held back</text><text class="dim" x="%d" y="%d">from day %d to %d</text>`, right+8, int(y(to))+34, right+8, int(y(to))+52, heldFrom, heldUntil)
	return sheet.Bytes(), nil
}
