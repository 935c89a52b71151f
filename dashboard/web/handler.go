// Package web is the operators' page: what every queue does right now, why its
// jobs wait and when they go, and the changes that operators make.
//
// The page is static; what it shows it asks of the API, at api/v1 beside it. It
// is built with Vite from the sources in this folder, and what was built is
// committed in dist, so that a Go program needs no node.
package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed dist
var dist embed.FS

// policy lets the page load what is served beside it and nothing else, and no
// text become code, whatever the names of tenants look like.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; font-src 'none'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Handler serves the page. It can be mounted under any prefix, which
// [http.StripPrefix] takes off:
//
//	mux.Handle("/queues/", http.StripPrefix("/queues", web.Handler()))
//	mux.Handle("/queues/api/v1/", …)
//
// It asks nobody who they are: the page shows nothing without the API, which
// does.
func Handler() http.Handler {
	files, err := readFiles(dist)
	if err != nil {
		panic(err) // it is part of the program
	}
	return files
}

// file is one file as it is sent.
type file struct {
	body, zipped      []byte // zipped is nil where it is not worth it
	kind, etag, cache string
}

type files map[string]file

func readFiles(from fs.FS) (files, error) {
	all := files{}
	err := fs.WalkDir(from, "dist", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(body)
		f := file{body: body, zipped: zip(body), kind: kindOf(name), etag: hex.EncodeToString(sum[:12]), cache: "no-cache"}
		if strings.HasPrefix(name, "dist/assets/") {
			f.cache = "public, max-age=31536000, immutable" // its name changes with what is in it
		}
		all["/"+strings.TrimPrefix(name, "dist/")] = f
		return nil
	})
	all["/"] = all["/index.html"]
	return all, err
}

// kindOf does not depend on the tables of the machine.
func kindOf(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return mime.TypeByExtension(path.Ext(name))
}

func zip(body []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	_, _ = w.Write(body) // a buffer takes everything
	_ = w.Close()
	if b.Len() > len(body)*9/10 {
		return nil
	}
	return b.Bytes()
}

func (all files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the page is read with GET", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == "" {
		// Mounted at /queues and asked for without the slash behind it, from which
		// on the page's addresses are counted. What the prefix was, only the client knows.
		asked, _, _ := strings.Cut(r.RequestURI, "?")
		h.Set("Location", "./"+path.Base(asked)+"/")
		w.WriteHeader(http.StatusPermanentRedirect)
		return
	}
	f, ok := all[r.URL.Path]
	if !ok {
		http.Error(w, "there is no such file; the page is at the top", http.StatusNotFound)
		return
	}
	body, etag := f.body, `"`+f.etag+`"`
	if f.zipped != nil {
		h.Set("Vary", "Accept-Encoding")
		if acceptsGzip(r.Header.Get("Accept-Encoding")) {
			h.Set("Content-Encoding", "gzip")
			body, etag = f.zipped, `"`+f.etag+`-gzip"`
		}
	}
	h.Set("Cache-Control", f.cache)
	h.Set("Content-Type", f.kind)
	h.Set("Etag", etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// acceptsGzip reads what browsers send; who weighs encodings gets the plain file.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		if strings.TrimSpace(part) == "gzip" {
			return true
		}
	}
	return false
}
