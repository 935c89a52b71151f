package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
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
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="t d">`, width, tall, width, tall)
	title := "The same calls, counted in two ways"
	line(`<title id="t">%s</title>`, title)
	seconds, most := map[time.Duration]int{}, 0
	for _, at := range went {
		seconds[(at+span/4)/time.Second]++ // the first request comes half a second after a second begins
	}
	counts := within(went)
	for _, n := range counts {
		most = max(most, n)
	}
	line(`<desc id="d">%d calls under a fixed window of 10 per second. Each second of the clock has at most 10 of them, and a second that begins between two of these has %d.</desc>`, len(went), most)
	line(`<style>%s</style>`, style)
	line(`<rect class="back" width="%d" height="%d"/>`, width, tall)
	line(`<text class="title" x="12" y="24">%s</text>`, title)
	for n := 0; n <= 20; n += 10 {
		line(`<path class="grid" d="M%d %sH%d"/><text class="dim end" x="%d" y="%d">%d</text>`, left, px(base-unit*float64(n)), right, left-8, int(base-unit*float64(n))+4, n)
	}
	for s := range int(longest / time.Second) {
		if n := seconds[time.Duration(s)]; n > 0 {
			from, to := max(x(time.Duration(s)*time.Second-span/4), left), x(time.Duration(s+1)*time.Second-span/4)
			line(`<path class="came" d="M%s %sH%sV%d"/>`, px(from), px(base-unit*float64(n)), px(to), base)
		}
	}
	var path strings.Builder
	for i, at := range went {
		fmt.Fprintf(&path, "M%s %dV%s", px(x(at)), base, px(base-unit*float64(counts[i])))
	}
	line(`<path class="went" d="%s"/>`, path.String())
	line(`<text class="dim" x="%d" y="%s">by the clock</text>`, right+8, px(base-unit*10+4))
	line(`<text class="tw" x="%d" y="%s">in any second</text><text class="dim" x="%d" y="%s">%d at most</text>`, right+8, px(base-unit*float64(most)+4), right+8, px(base-unit*float64(most)+20), most)
	for s := range int(longest/time.Second) + 1 {
		line(`<text class="dim mid" x="%s" y="%d">%d s</text>`, px(x(time.Duration(s)*time.Second)), base+24, s)
	}
	line(`</svg>`)
	return []byte(b.String())
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
