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

// The plot shows how many calls of ten clients are allowed, and which limit refuses the others: first one client calls
// far too often, then all of them call twice as often as usual.
const (
	refusedLast            = 30 // seconds
	clients, usual         = 10, 4
	wildFrom, wildUntil    = 7, 14
	wild                   = 60 // calls a second of the one that is out of hand
	rushFrom, rushUntil    = 19, 26
	ofClient, ofAll        = 10, 60 // their limits, per second
	refusedMost, refusedBy = 90, 30
)

// calledAt returns how many calls a client makes in a second.
func calledAt(client, second int) int {
	switch {
	case client == 0 && second >= wildFrom && second < wildUntil:
		return wild
	case second >= rushFrom && second < rushUntil:
		return 2 * usual
	}
	return usual
}

// decided counts the calls of each second, as an observer of the limiter gets them: under allowed, or under the limit
// that refused them.
type decided map[string]*[refusedLast]int

func playRefused(ctx context.Context, client *redis.Client) ([]byte, error) {
	begin := time.Unix(1_800_000_000, 0)
	now, counts := begin, decided{"allowed": {}, "client": {}, "service": {}}
	limiter, err := throttle.New(client, "refused",
		throttle.Limit{Name: "client", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(ofClient), Burst: ofClient},
		throttle.Limit{Name: "service", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(ofAll), Burst: ofAll / 4})
	if err != nil {
		return nil, err
	}
	limiter = limiter.WithClock(func() time.Time { return now }).WithObserver(func(seen throttle.Observation) {
		what := "allowed"
		if !seen.Decision.Allowed {
			what = seen.Decision.Limit
		}
		counts[what][int(now.Sub(begin).Seconds())]++
	})
	for second := range refusedLast {
		var moments [1000][]int // of this second, in ms: the clients that call
		for one := range clients {
			n := calledAt(one, second)
			for i := range n {
				at := (1000*i/n + 37*one) % 1000
				moments[at] = append(moments[at], one)
			}
		}
		for at, callers := range moments {
			now = begin.Add(time.Duration(second)*time.Second + time.Duration(at)*time.Millisecond)
			for _, one := range callers {
				if _, err := limiter.Take(ctx, 1, fmt.Sprint("client ", one), "all"); err != nil {
					return nil, err
				}
			}
		}
	}
	return refusedSVG(counts), nil
}

// refusedSVG draws how many calls of each second were allowed, and how many each limit refused.
func refusedSVG(counts decided) []byte {
	x := func(second int) float64 { return left + float64(right-left)*float64(second)/refusedLast }
	y := func(calls int) float64 { return bottom - float64(bottom-top)*float64(calls)/refusedMost }
	sum := func(what string, from, until int) (n int) {
		for second := from; second < until; second++ {
			n += counts[what][second]
		}
		return n
	}
	const tall = 290
	title := "What came of calls: which limit refused them"
	sheet := svg.New(width, tall, title, fmt.Sprintf(`Ten clients call 40 times a second in all. While one of them calls 60 times a second, its own limit of %d/s refuses %d calls, and that of the service %d. While all of them call twice as often, the limit of the service, %d/s, refuses %d, and those of the clients %d.`,
		ofClient, sum("client", wildFrom, wildUntil), sum("service", wildFrom, wildUntil), ofAll, sum("service", rushFrom, rushUntil), sum("client", rushFrom, rushUntil)))
	line := sheet.Line
	line(`<text class="dim" x="12" y="46">calls a second</text>`)
	for calls := 0; calls <= refusedMost; calls += refusedBy {
		line(`<path class="grid" d="M%d %sH%d"/><text class="dim end" x="%d" y="%d">%d</text>`, left, svg.Px(y(calls)), right, left-8, int(y(calls))+4, calls)
	}
	for second := 0; second <= refusedLast; second += 10 {
		line(`<text class="dim mid" x="%s" y="270">%d s</text>`, svg.Px(x(second)), second)
	}
	for _, of := range []struct {
		text        string
		from, until int
	}{{"one is out of hand", wildFrom, wildUntil}, {"all are busy", rushFrom, rushUntil}} {
		line(`<text class="dim mid" x="%s" y="%d">%s</text>`, svg.Px((x(of.from)+x(of.until))/2), top-8, of.text)
	}
	for _, of := range []struct{ class, what string }{{"came", "allowed"}, {"no", "client"}, {"went", "service"}} {
		var path strings.Builder
		for second, n := range counts[of.what] {
			fmt.Fprintf(&path, "%c%s %sH%s", "ML"[min(second, 1)], svg.Px(x(second)), svg.Px(y(n)), svg.Px(x(second+1)))
		}
		line(`<path class="%s" d="%s"/>`, of.class, path.String())
	}
	line(`<text class="dim" x="%d" y="%d">allowed</text>`, right+8, int(y(counts["allowed"][refusedLast-1]))+4)
	line(`<text class="dim" x="%d" y="%d">refused by</text>`, right+8, int(y(0))-36)
	line(`<text class="tn" x="%d" y="%d">client</text>`, right+8, int(y(0))-18)
	line(`<text class="tw" x="%d" y="%d">service</text>`, right+8, int(y(0)))
	return sheet.Bytes()
}
