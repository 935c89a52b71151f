package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/test/svg"
)

// The dimensions of the picture in px. The axes extend to 3 s and to the number of requests.
const (
	width, height = 640, 330
	left, right   = 52, 520 // of the time axis; the names of the lines are to the right of it
	top, bottom   = 64, 244 // of the count axis
	marks         = 262     // where refusals are marked
	longest       = 3 * time.Second
)

// draw draws how many requests had arrived and how many had gone at each time.
func (p played) draw() []byte {
	sheet := svg.New(width, height, p.title, p.describe())
	line := sheet.Line
	line(`<text class="dim" x="12" y="46">requests since the first one</text>`)

	for n := 0; n <= offered; n += 20 {
		line(`<path class="grid" d="M%d %sH%d"/><text class="dim end" x="%d" y="%d">%d</text>`, left, svg.Px(y(n)), right, left-8, int(y(n))+4, n)
	}
	for s := range int(longest/time.Second) + 1 {
		at := x(time.Duration(s) * time.Second)
		line(`<path class="grid" d="M%s %dV%d"/><text class="dim mid" x="%s" y="296">%d s</text>`, svg.Px(at), bottom, marks+14, svg.Px(at), s)
	}
	line(`<text class="dim mid" x="%d" y="318">time since the first request</text>`, (left+right)/2)
	if p.edges {
		for at := span / 4; at < longest; at += span / 2 {
			line(`<path class="edge" d="M%s %dV%d"/>`, svg.Px(x(at)), top-8, marks+14)
		}
		line(`<text class="dim mid" x="%s" y="%d">a window begins</text>`, svg.Px(x(3*span/4)), top-12)
	}

	line(`<path class="came" d="%s"/>`, steps(p.came))
	line(`<path class="went" d="%s"/>`, steps(p.went))
	line(`<text class="dim" x="%d" y="%d">%d offered</text>`, right+8, int(y(offered))+4, offered)
	line(`<text class="tw" x="%d" y="%d">%d let through</text>`, right+8, int(y(len(p.went)))+4, len(p.went))
	if len(p.refused) > 0 {
		var ticks strings.Builder
		for _, at := range p.refused {
			fmt.Fprintf(&ticks, "M%s %dv12", svg.Px(x(at)), marks-6)
		}
		line(`<path class="no" d="%s"/>`, ticks.String())
	}
	line(`<text class="tn" x="%d" y="%d">%d refused</text>`, right+8, marks+4, len(p.refused))
	return sheet.Bytes()
}

// describe returns a description of the picture.
func (p played) describe() string {
	most := maxWithin(p.went, time.Second)
	text := fmt.Sprintf("%d requests come evenly within %d s. %d are let through", offered, int(span.Seconds()), len(p.went))
	if last := p.went[len(p.went)-1]; last > span {
		text += fmt.Sprintf(", the last one after %.1f s", last.Seconds())
	}
	return text + fmt.Sprintf("; %d are refused. At most %d are let through within one second.", len(p.refused), most)
}

func x(at time.Duration) float64 {
	return left + float64(right-left)*at.Seconds()/longest.Seconds()
}

func y(n int) float64 { return bottom - float64(bottom-top)*float64(n)/offered }

// steps draws a count that increases by one at each of the times, to the end of the axis.
func steps(moments []time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "M%d %d", left, bottom)
	for i := 0; i < len(moments); {
		n := i
		for n < len(moments) && moments[n] == moments[i] {
			n++
		}
		fmt.Fprintf(&b, "H%sV%s", svg.Px(x(moments[i])), svg.Px(y(n)))
		i = n
	}
	fmt.Fprintf(&b, "H%d", right)
	return b.String()
}

// maxWithin returns the max number of the times, which ascend, within any (t - d, t].
func maxWithin(moments []time.Duration, d time.Duration) int {
	most, from := 0, 0
	for i, at := range moments {
		for moments[from] <= at-d {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}
