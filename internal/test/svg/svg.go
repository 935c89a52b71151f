// Package svg makes pictures of the docs, which show alike in light and in dark.
package svg

import (
	"fmt"
	"strings"
)

// Sheet is a picture. Its classes are those of [style].
type Sheet struct{ b strings.Builder }

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

// New returns a picture of so many px with a title and a description for those who do not see it.
func New(width, height int, title, description string) *Sheet {
	s := &Sheet{}
	s.Line(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="t d">`, width, height, width, height)
	s.Line(`<title id="t">%s</title>`, title)
	s.Line(`<desc id="d">%s</desc>`, description)
	s.Line(`<style>%s</style>`, style)
	s.Line(`<rect class="back" width="%d" height="%d"/>`, width, height)
	s.Line(`<text class="title" x="12" y="24">%s</text>`, title)
	return s
}

// Line adds elements.
func (s *Sheet) Line(format string, args ...any) { fmt.Fprintf(&s.b, format+"\n", args...) }

// Bytes returns the whole picture.
func (s *Sheet) Bytes() []byte { return []byte(s.b.String() + "</svg>\n") }

// Px returns a number of px for an attribute.
func Px(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }
