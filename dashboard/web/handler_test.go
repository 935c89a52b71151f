package web_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/dashboard/web"
)

// serve mounts the page as a program would.
func serve(t *testing.T, prefix string) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(prefix+"/", http.StripPrefix(prefix, web.Handler()))
	if prefix != "" {
		mux.Handle(prefix, http.StripPrefix(prefix, web.Handler()))
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

func get(t *testing.T, url string, headers ...string) (*http.Response, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultTransport.RoundTrip(request) // no redirect is followed, nothing is unpacked
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

var reference = regexp.MustCompile(`(?:src|href)="([^"]+)"`)

func TestMountedUnderAnyPrefix(t *testing.T) {
	for _, prefix := range []string{"", "/queues", "/ops/queues"} {
		t.Run(prefix, func(t *testing.T) {
			server := serve(t, prefix)
			response, page := get(t, server.URL+prefix+"/")
			if response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/html") {
				t.Fatalf("the page: %s, %s", response.Status, response.Header.Get("Content-Type"))
			}
			found := reference.FindAllStringSubmatch(page, -1)
			if len(found) < 3 {
				t.Fatalf("%d references in the page, want a script, a style sheet and an icon:\n%s", len(found), page)
			}
			for _, match := range found {
				name, relative := strings.CutPrefix(match[1], "./")
				if !relative {
					t.Errorf("%s is not relative: it breaks under a prefix", match[1])
				}
				if response, _ := get(t, server.URL+prefix+"/"+name); response.StatusCode != http.StatusOK {
					t.Errorf("%s: %s", match[1], response.Status)
				}
			}
			if prefix == "" {
				return
			}
			response, _ = get(t, server.URL+prefix+"?a=b")
			location, err := response.Location()
			if err != nil || location.String() != server.URL+prefix+"/" {
				t.Errorf("without the slash: %s to %v (%v), want %s/", response.Status, location, err, prefix)
			}
		})
	}
}

func TestPolicy(t *testing.T) {
	server := serve(t, "")
	for _, path := range []string{"/", "/index.html", "/no-such-file"} {
		response, _ := get(t, server.URL+path)
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; font-src 'none'; " +
				"frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
			"X-Content-Type-Options":     "nosniff",
			"Referrer-Policy":            "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin",
		} {
			if got := response.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
	}
}

func TestCaching(t *testing.T) {
	server := serve(t, "")
	_, page := get(t, server.URL+"/")
	script := regexp.MustCompile(`assets/[^"]+\.js`).FindString(page)
	for path, want := range map[string]string{"/": "no-cache", "/" + script: "public, max-age=31536000, immutable"} {
		plain, body := get(t, server.URL+path, "Accept-Encoding", "identity")
		if got := plain.Header.Get("Cache-Control"); got != want {
			t.Errorf("%s: Cache-Control is %q, want %q", path, got, want)
		}
		etag := plain.Header.Get("Etag")
		if again, rest := get(t, server.URL+path, "If-None-Match", etag, "Accept-Encoding", "identity"); again.StatusCode != http.StatusNotModified || rest != "" {
			t.Errorf("%s asked for again: %s with %d bytes, want 304", path, again.Status, len(rest))
		}
		if len(body) < 1000 {
			continue
		}
		zipped, packed := get(t, server.URL+path, "Accept-Encoding", "gzip, br")
		if zipped.Header.Get("Content-Encoding") != "gzip" || len(packed) > len(body)/2 || zipped.Header.Get("Etag") == etag {
			t.Errorf("%s zipped: encoding %q, %d bytes of %d, tags %s and %s", path, zipped.Header.Get("Content-Encoding"), len(packed), len(body), zipped.Header.Get("Etag"), etag)
		}
	}
}

func TestOnlyReads(t *testing.T) {
	server := serve(t, "")
	response, err := http.Post(server.URL+"/", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusMethodNotAllowed || response.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %s, Allow %q", response.Status, response.Header.Get("Allow"))
	}
	for _, path := range []string{"/assets/", "/assets", "/../handler.go", "/%2e%2e/handler.go"} {
		if response, _ := get(t, server.URL+path); response.StatusCode == http.StatusOK {
			t.Errorf("%s is served", path)
		}
	}
}

// maxScript bounds the bytes of JavaScript that a browser loads, compressed with gzip.
const maxScript = 60_000

func TestBuiltFiles(t *testing.T) {
	allowed := map[string]bool{ // names of XML's, which nothing loads
		"http://www.w3.org/2000/svg": true, "http://www.w3.org/1999/xhtml": true, "http://www.w3.org/1998/Math/MathML": true,
	}
	address := regexp.MustCompile("(?:https?:)?//[a-zA-Z0-9][a-zA-Z0-9.-]*\\.[a-z]{2,}[^\\s\"'`)\\\\]*")
	inline := regexp.MustCompile(`(?i)<script(?:\s[^>]*)?>\s*[^<\s]|<style|\sstyle=|\son[a-z]+=|javascript:`)
	evaluates := regexp.MustCompile(`\beval\(|\bnew Function\b|\bFunction\(|document\.write|importScripts|\bsetTimeout\(["']`)
	script := 0
	err := filepath.WalkDir("dist", func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, found := range address.FindAllString(string(text), -1) {
			if !allowed[found] {
				t.Errorf("%s names another host: %s", name, found)
			}
		}
		switch filepath.Ext(name) {
		case ".js":
			var packed bytes.Buffer
			zip := gzip.NewWriter(&packed)
			zip.Write(text)
			zip.Close()
			script += packed.Len()
			if found := evaluates.Find(text); found != nil {
				t.Errorf("%s makes text into code: %s", name, found)
			}
		case ".html", ".svg":
			if found := inline.Find(text); found != nil {
				t.Errorf("%s has code or style within, which the policy forbids: %s", name, found)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if script == 0 || script > maxScript {
		t.Errorf("%d bytes of compressed JavaScript, want at most %d", script, maxScript)
	}
}
