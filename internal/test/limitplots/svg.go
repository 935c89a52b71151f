package main

import (
	"fmt"
	"strings"
	"time"
)

// The dimensions of the picture in px. The axes extend to 3 s and to the number of requests.
const (
	width, height = 640, 330
	left, right   = 52, 520 // of the time axis; the names of the lines are to the right of it
	top, bottom   = 64, 244 // of the count axis
	marks         = 262     // where refusals are marked
	longest       = 3 * time.Second
)

const style = `
text{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:var(--text)}
.title{font-size:15px;font-weight:600}
.dim{fill:var(--dim)}
.end{text-anchor:end}.mid{text-anchor:middle}
.back{fill:var(--back)}
path{fill:none;stroke-width:1}
.grid{stroke:var(--grid)}
.edge{stroke:var(--dim);stroke-dasharray:2 4}
.came{stroke:var(--came);stroke-width:1.5}
.went{stroke:var(--went);stroke-width:2.5;stroke-linejoin:round}
.no{stroke:var(--no);stroke-width:2}
.tw{fill:var(--went);font-weight:600}.tn{fill:var(--no);font-weight:600}
svg{--back:#fff;--text:#1f2328;--dim:#59636e;--grid:#d8dee4;--came:#6e7781;--went:#0860ca;--no:#b33800}
@media (prefers-color-scheme:dark){svg{--back:#0d1117;--text:#e6edf3;--dim:#9198a1;--grid:#2b3139;--came:#8b949e;--went:#58a6ff;--no:#f0883e}}
`

// svg draws how many requests had arrived and how many had gone at each time.
func (p played) svg() []byte {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="t d">`, width, height, width, height)
	line(`<title id="t">%s</title>`, p.title)
	line(`<desc id="d">%s</desc>`, p.describe())
	line(`<style>%s</style>`, style)
	line(`<rect class="back" width="%d" height="%d"/>`, width, height)
	line(`<text class="title" x="12" y="24">%s</text>`, p.title)
	line(`<text class="dim" x="12" y="46">requests since the first one</text>`)

	for n := 0; n <= offered; n += 20 {
		line(`<path class="grid" d="M%d %sH%d"/><text class="dim end" x="%d" y="%d">%d</text>`, left, px(y(n)), right, left-8, int(y(n))+4, n)
	}
	for s := range int(longest/time.Second) + 1 {
		at := x(time.Duration(s) * time.Second)
		line(`<path class="grid" d="M%s %dV%d"/><text class="dim mid" x="%s" y="296">%d s</text>`, px(at), bottom, marks+14, px(at), s)
	}
	line(`<text class="dim mid" x="%d" y="318">time since the first request</text>`, (left+right)/2)
	if p.edges {
		for at := span / 4; at < longest; at += span / 2 {
			line(`<path class="edge" d="M%s %dV%d"/>`, px(x(at)), top-8, marks+14)
		}
		line(`<text class="dim mid" x="%s" y="%d">a window begins</text>`, px(x(3*span/4)), top-12)
	}

	line(`<path class="came" d="%s"/>`, steps(p.came))
	line(`<path class="went" d="%s"/>`, steps(p.went))
	line(`<text class="dim" x="%d" y="%d">%d offered</text>`, right+8, int(y(offered))+4, offered)
	line(`<text class="tw" x="%d" y="%d">%d let through</text>`, right+8, int(y(len(p.went)))+4, len(p.went))
	if len(p.refused) > 0 {
		var ticks strings.Builder
		for _, at := range p.refused {
			fmt.Fprintf(&ticks, "M%s %dv12", px(x(at)), marks-6)
		}
		line(`<path class="no" d="%s"/>`, ticks.String())
	}
	line(`<text class="tn" x="%d" y="%d">%d refused</text>`, right+8, marks+4, len(p.refused))
	line(`</svg>`)
	return []byte(b.String())
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
		fmt.Fprintf(&b, "H%sV%s", px(x(moments[i])), px(y(n)))
		i = n
	}
	fmt.Fprintf(&b, "H%d", right)
	return b.String()
}

// px formats a coordinate with at most one decimal.
func px(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

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
