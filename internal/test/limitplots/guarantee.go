package main

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/svg"
)

// sharer is a tenant that shares a limit.
type sharer struct {
	name, class, text string
	weight, sure      float64 // sure: what is guaranteed to it, per second
	from, until       int     // when it has jobs, s
	label             int     // the second over which its name stands
}

// sharesAt returns what each gets of a rate in a second: its guarantee or its share by weight, whichever is more.
func sharesAt(all []sharer, rate float64, second int) []float64 {
	shares, sure := make([]float64, len(all)), make([]bool, len(all))
	for again := true; again; {
		again = false
		left, weights := rate, 0.0
		here := func(s sharer) bool { return second >= s.from && second < s.until }
		for i, s := range all {
			if !here(s) {
				continue
			}
			if sure[i] {
				left -= s.sure
			} else {
				weights += s.weight
			}
		}
		for i, s := range all {
			switch {
			case !here(s):
				shares[i] = 0
			case sure[i]:
				shares[i] = s.sure
			default:
				if shares[i] = left * s.weight / weights; shares[i] < s.sure {
					sure[i], again = true, true
				}
			}
		}
	}
	return shares
}

// playGuarantee draws how tenants with and without a guarantee share a limit while they come and go.
func playGuarantee(context.Context, *redis.Client) ([]byte, error) {
	const rate, last = 100.0, 40
	all := []sharer{
		{"acme", "went", "tw", 1, 30, 8, last, 11},
		{"globex", "no", "tn", 2, 50, 18, last, 21},
		{"a batch", "came", "dim", 50, 0, 0, 30, 11},
	}
	x := func(second int) float64 { return left + float64(right-left)*float64(second)/last }
	y := func(calls float64) float64 { return bottom - float64(bottom-top)*calls/rate }
	title := "30% and 50% of 100/s are guaranteed, and lent"
	sheet := svg.New(width, height, title, `A batch of weight 50 has all of 100/s until acme comes with a guarantee of 30%, then 70/s. Globex comes with a guarantee of 50%, and the batch has 20/s. When the batch is done, acme and globex, of weights 1 and 2, have a third and two thirds.`)
	line := sheet.Line
	line(`<text class="dim" x="12" y="46">calls a second</text>`)
	for calls := 0; calls <= rate; calls += 20 {
		line(`<path class="grid" d="M%d %sH%d"/><text class="dim end" x="%d" y="%d">%d</text>`, left, svg.Px(y(float64(calls))), right, left-8, int(y(float64(calls)))+4, calls)
	}
	for second := 0; second <= last; second += 10 {
		line(`<path class="grid" d="M%s %dV%d"/><text class="dim mid" x="%s" y="296">%d s</text>`, svg.Px(x(second)), bottom, marks+14, svg.Px(x(second)), second)
	}
	line(`<text class="dim mid" x="%d" y="318">time</text>`, (left+right)/2)
	for i, s := range all {
		var d strings.Builder
		for second := s.from; second < s.until; second++ {
			fmt.Fprintf(&d, "%c%s %sH%s", "ML"[min(second-s.from, 1)], svg.Px(x(second)), svg.Px(y(sharesAt(all, rate, second)[i])), svg.Px(x(second+1)))
		}
		line(`<path class="%s" d="%s"/>`, s.class, d.String())
		line(`<text class="%s" x="%s" y="%d">%s</text>`, s.text, svg.Px(x(s.label)), int(math.Round(y(sharesAt(all, rate, s.label)[i])))-8, s.name)
	}
	line(`<text class="dim" x="%d" y="%d">weights:</text>`, right+8, top+20)
	for i, s := range all {
		line(`<text class="dim" x="%d" y="%d">%s %g</text>`, right+8, top+40+20*i, s.name, s.weight)
	}
	return sheet.Bytes(), nil
}
