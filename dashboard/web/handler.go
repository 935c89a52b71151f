// Package web serves the dashboard: the current state of every queue, why jobs wait and when
// they go, and the controls for operators.
//
// The page is static and gets its data from the API, at api/v1 below the same prefix. It is
// built with Vite from the sources in this folder. The build is committed in dist, so that Go
// programs do not need Node.
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

// policy is the content security policy: the page can load only files from its own origin, and
// no text can become code, such as the name of a tenant.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; font-src 'none'; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Handler returns a handler that serves the page. It can be mounted under any prefix, with
// [http.StripPrefix]:
//
//	mux.Handle("/queues/", http.StripPrefix("/queues", web.Handler()))
//	mux.Handle("/queues/api/v1/", …)
//
// It does not authenticate requests: the page has no data of its own, and the API
// authenticates.
func Handler() http.Handler {
	files, err := readFiles(dist)
	if err != nil {
		panic(err) // the files are embedded
	}
	return files
}

// file is one file of the page.
type file struct {
	body, zipped      []byte // zipped is nil if compression saves too little
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
			f.cache = "public, max-age=31536000, immutable" // the name has a hash of the content
		}
		all["/"+strings.TrimPrefix(name, "dist/")] = f
		return nil
	})
	all["/"] = all["/index.html"]
	return all, err
}

// kindOf returns the media type of a file, for its own types independently of the system's tables.
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
	_, _ = w.Write(body) // a buffer never fails
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
		http.Error(w, "method not allowed: use GET", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == "" {
		// The page is mounted at a prefix such as /queues and was requested without the trailing
		// slash, to which its addresses are relative. Only the request URI has the prefix.
		asked, _, _ := strings.Cut(r.RequestURI, "?")
		h.Set("Location", "./"+path.Base(asked)+"/")
		w.WriteHeader(http.StatusPermanentRedirect)
		return
	}
	f, ok := all[r.URL.Path]
	if !ok {
		http.Error(w, "file not found: the page is at the root", http.StatusNotFound)
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

// acceptsGzip reports whether an Accept-Encoding header names gzip. Weights such as gzip;q=1 are
// not parsed: such clients get the uncompressed file.
func acceptsGzip(header string) bool {
	for part := range strings.SplitSeq(header, ",") {
		if strings.TrimSpace(part) == "gzip" {
			return true
		}
	}
	return false
}
