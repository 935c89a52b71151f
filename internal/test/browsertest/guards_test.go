package browsertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestGuards: what the scenarios look for on every page is found where it is.
func TestGuards(t *testing.T) {
	t.Parallel()
	pages := map[string]struct{ body, script string }{
		"good":          {body: `<p>All is well.</p>`},
		"inline-script": {body: `<script>window.x = 1</script>`},
		"inline-style":  {body: `<p style="color: red">Red</p>`},
		"other-host":    {script: `fetch('http://198.51.100.1/').catch(() => {})`},
		"throws":        {script: `setTimeout(() => { throw new Error('by design') })`},
		"logs":          {script: `console.error('by design')`},
		"alert":         {script: `alert('by design')`},
		"pale":          {body: `<p class="pale">Hard to read</p>`},
		"wide":          {body: `<p class="wide">Wide</p>`},
	}
	mux := http.NewServeMux()
	for name, page := range pages {
		mux.HandleFunc("/"+name, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			if name != "other-host" { // the policy would be what stops it
				w.Header().Set("Content-Security-Policy", "default-src 'self'; img-src data:")
			}
			fmt.Fprintf(w, `<!doctype html><html lang="en"><title>%s</title><link rel="stylesheet" href="/style.css"><link rel="icon" href="data:,">
<main><h1>A page</h1>%s</main><script src="/%s.js"></script></html>`, name, page.body, name)
		})
		mux.HandleFunc("/"+name+".js", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprintf(w, `%s; setTimeout(() => { const e = document.createElement('i'); e.id = 'done'; document.body.append(e) }, 100)`, page.script)
		})
	}
	mux.HandleFunc("/style.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css")
		fmt.Fprint(w, `body { margin: 0 } .pale { color: #ccc; background: #fff } .wide { width: 500px }`)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	scenario(t, "guards.mjs", run{base: server.URL})
}
