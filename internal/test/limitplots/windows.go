package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/svg"
)

// within returns how many moments are in the second that ends with each of them.
func within(went []time.Duration) []int {
	counts, from := make([]int, len(went)), 0
	for i := range went {
		for went[i]-went[from] >= time.Second {
			from++
		}
		counts[i] = i - from + 1
	}
	return counts
}

// windowsSVG draws the calls of a fixed window of a second twice: as counted second by second, and in the second that
// ends with each call.
func windowsSVG(went []time.Duration) []byte {
	const base, unit, tall = 212, 7.5, 250
	title := "The same calls, counted in two ways"
	seconds, most := map[time.Duration]int{}, 0
	for _, at := range went {
		seconds[(at+span/4)/time.Second]++ // the first request comes half a second after a second begins
	}
	counts := within(went)
	for _, n := range counts {
		most = max(most, n)
	}
	sheet := svg.New(width, tall, title, fmt.Sprintf(`%d calls under a fixed window of 10 per second. Each second of the clock has at most 10 of them, and a second that begins between two of these has %d.`, len(went), most))
	line := sheet.Line
	for n := 0; n <= 20; n += 10 {
		line(`<path class="grid" d="M%d %sH%d"/><text class="dim end" x="%d" y="%d">%d</text>`, left, svg.Px(base-unit*float64(n)), right, left-8, int(base-unit*float64(n))+4, n)
	}
	for s := range int(longest / time.Second) {
		if n := seconds[time.Duration(s)]; n > 0 {
			from, to := max(x(time.Duration(s)*time.Second-span/4), left), x(time.Duration(s+1)*time.Second-span/4)
			line(`<path class="came" d="M%s %sH%sV%d"/>`, svg.Px(from), svg.Px(base-unit*float64(n)), svg.Px(to), base)
		}
	}
	var path strings.Builder
	for i, at := range went {
		fmt.Fprintf(&path, "M%s %dV%s", svg.Px(x(at)), base, svg.Px(base-unit*float64(counts[i])))
	}
	line(`<path class="went" d="%s"/>`, path.String())
	line(`<text class="dim" x="%d" y="%s">by the clock</text>`, right+8, svg.Px(base-unit*10+4))
	line(`<text class="tw" x="%d" y="%s">in any second</text><text class="dim" x="%d" y="%s">%d at most</text>`, right+8, svg.Px(base-unit*float64(most)+4), right+8, svg.Px(base-unit*float64(most)+20), most)
	for s := range int(longest/time.Second) + 1 {
		line(`<text class="dim mid" x="%s" y="%d">%d s</text>`, svg.Px(x(time.Duration(s)*time.Second)), base+24, s)
	}
	return sheet.Bytes()
}

// playWindows makes the plot of the calls that a fixed window lets through.
func playWindows(ctx context.Context, client *redis.Client) ([]byte, error) {
	fixed := scenes[0]
	fixed.file = "windows" // with a bucket of its own
	played, err := fixed.play(ctx, client)
	if err != nil {
		return nil, err
	}
	return windowsSVG(played.went), nil
}
