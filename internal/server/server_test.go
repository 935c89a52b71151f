package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue/operate"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// opened is a server on free ports, unless change says otherwise.
func opened(t *testing.T, change func(*Config)) (*Server, error) {
	t.Helper()
	config := Config{Addr: "127.0.0.1:0", API: api.Config{Redis: redistest.Shared(t).Client()}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&config)
	}
	return Open(config)
}

// running runs it; stop ends it, and tells how.
func running(t *testing.T, change func(*Config)) (s *Server, stop func() error) {
	t.Helper()
	s, err := opened(t, change)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	over := false
	stop = func() error {
		if over {
			return nil
		}
		over = true
		cancel()
		return <-ended
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return s, stop
}

func client(t *testing.T) *http.Client {
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := client(t).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func metrics(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "some_metric 1") }

func TestOneAddress(t *testing.T) {
	s, _ := running(t, func(c *Config) {
		c.Metrics, c.Ready = http.HandlerFunc(metrics), func() error { return errors.New("no Redis") }
	})
	for path, want := range map[string]string{
		"metrics": "some_metric", "livez": "ok", "readyz": "no Redis", "": "<!doctype html>", "api/v1/session": `"actor":"local"`, "api/v1/none": "problem",
	} {
		status, body := get(t, s.URL()+path)
		if path != "api/v1/none" && !strings.Contains(body, want) || path == "readyz" && status != 503 {
			t.Errorf("/%s: %d %.100s; want %s", path, status, body, want)
		}
	}
	if status, _ := get(t, s.URL()+"debug/pprof/"); status == 200 {
		t.Error("pprof is at the address of the API")
	}
}

func TestAdminAddress(t *testing.T) {
	s, _ := running(t, func(c *Config) { c.AdminAddr, c.Metrics = "127.0.0.1:0", http.HandlerFunc(metrics) })
	admin := "http://" + s.AdminAddr() + "/"
	for _, path := range []string{"metrics", "livez", "readyz", "debug/pprof/", "debug/pprof/cmdline"} {
		if status, body := get(t, admin+path); status != 200 {
			t.Errorf("admin /%s: %d %.100s", path, status, body)
		}
		if status, body := get(t, s.URL()+path); status == 200 && !strings.Contains(body, "<!doctype html>") {
			t.Errorf("main /%s: %d %.100s", path, status, body)
		}
	}
	if status, _ := get(t, admin+"api/v1/session"); status != 404 {
		t.Errorf("the API is at the admin address: %d", status)
	}
	for pprof, want := range map[bool]int{false: 404, true: 200} {
		s, _ := running(t, func(c *Config) { c.AdminAddr, c.Pprof = "0.0.0.0:0", pprof })
		_, port, _ := net.SplitHostPort(s.AdminAddr())
		if status, _ := get(t, "http://127.0.0.1:"+port+"/debug/pprof/"); status != want {
			t.Errorf("pprof beyond this machine, allowed %v: %d", pprof, status)
		}
	}
}

// TestMachinesAreNotForPages: without an admin address, pages of other sites do not reach what machines ask for either.
func TestMachinesAreNotForPages(t *testing.T) {
	s, _ := running(t, func(c *Config) { c.Metrics = http.HandlerFunc(metrics) })
	for _, path := range []string{"/metrics", "/livez", "/readyz"} {
		for _, test := range []struct {
			host, site string
			want       int
		}{{"", "", 200}, {"localhost:1", "none", 200}, {"evil.example", "", 403}, {"", "cross-site", 403}} {
			request, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.Addr()+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Host = test.host
			request.Header.Set("Sec-Fetch-Site", test.site)
			response, err := client(t).Do(request)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != test.want {
				t.Errorf("%s %+v: %d", path, test, response.StatusCode)
			}
		}
	}
}

// TestAdminIsNotForPages: pages of other sites reach nothing at the admin address, and a profile
// ends.
func TestAdminIsNotForPages(t *testing.T) {
	s, _ := running(t, func(c *Config) { c.AdminAddr, c.Metrics = "127.0.0.1:0", http.HandlerFunc(metrics) })
	ask := func(path, host, site string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.AdminAddr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = host
		if site != "" {
			request.Header.Set("Sec-Fetch-Site", site)
		}
		response, err := client(t).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	for _, test := range []struct {
		host, site string
		want       int
	}{
		{"", "", 200}, {"localhost:1", "", 200}, {"", "none", 200}, {"", "same-origin", 200},
		{"evil.example", "", 403}, {"10.0.0.1:9091", "", 403}, {"", "cross-site", 403}, {"", "same-site", 403},
	} {
		for _, path := range []string{"/metrics", "/debug/pprof/cmdline"} {
			if status, body := ask(path, test.host, test.site); status != test.want {
				t.Errorf("%s %+v: %d %.100s", path, test, status, body)
			}
		}
	}
	for _, path := range []string{"profile?seconds=61", "trace?seconds=1e9", "profile?seconds=-1", "trace?seconds=x", "heap?seconds=86400", "profile?seconds=NaN"} {
		if status, body := ask("/debug/pprof/"+path, "", ""); status != 400 || !strings.Contains(body, "seconds: ") {
			t.Errorf("%s: %d %.100s", path, status, body)
		}
	}
	if status, _ := ask("/debug/pprof/trace?seconds=0.01", "", ""); status != 200 {
		t.Errorf("a short trace: %d", status)
	}
}

// TestReadyzTellsStrangersNothing: only this machine learns why a server is not ready.
func TestReadyzTellsStrangersNothing(t *testing.T) {
	ready := readiness(func() error { return errors.New("redis at 10.0.0.7 is a replica") }, nil)
	for _, test := range []struct {
		peer, header string
		told         bool
	}{
		{"127.0.0.1:1", "", true}, {"[::1]:1", "", true}, {"192.0.2.1:1", "", false}, {"127.0.0.1:1", "X-Forwarded-For", false}, {"", "", false},
	} {
		request := httptest.NewRequest("GET", "/readyz", nil)
		request.RemoteAddr = test.peer
		if test.header != "" {
			request.Header.Set(test.header, "192.0.2.1")
		}
		answer := httptest.NewRecorder()
		ready(answer, request)
		if told := strings.Contains(answer.Body.String(), "replica"); answer.Code != 503 || told != test.told {
			t.Errorf("%+v: %d %q", test, answer.Code, answer.Body)
		}
	}
}

// TestReadyzNamesWhatIsAway: a server that is ready tells this machine, and nobody else, which queues it
// cannot serve.
func TestReadyzNamesWhatIsAway(t *testing.T) {
	ready := readiness(func() error { return nil }, func() []string { return []string{"webhook@3"} })
	for peer, want := range map[string]string{"127.0.0.1:1": "ok\nqueue webhook@3: its Redis does not answer\n", "192.0.2.1:1": "ok\n"} {
		request, answer := httptest.NewRequest("GET", "/readyz", nil), httptest.NewRecorder()
		request.RemoteAddr = peer
		if ready(answer, request); answer.Code != 200 || answer.Body.String() != want {
			t.Errorf("%s: %d %q; want %q", peer, answer.Code, answer.Body, want)
		}
	}
}

// Where others can reach it, a server without keys does not start.
func TestClosedByDefault(t *testing.T) {
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		s, err := opened(t, func(c *Config) { c.Addr = addr })
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "HEADGATE_API_KEYS_FILE") || !strings.Contains(err.Error(), "enqueue keys new") {
			t.Errorf("%s: %v", addr, err)
		}
	}
	secret, path := keys(t)
	s, _ := running(t, func(c *Config) { c.Addr, c.KeysFile = "0.0.0.0:0", path })
	_, port, _ := net.SplitHostPort(s.Addr())
	url := "http://127.0.0.1:" + port + "/api/v1/session"
	if status, _ := get(t, url); status != 401 {
		t.Errorf("without a key: %d", status)
	}
	request, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+secret)
	response, err := client(t).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != 200 {
		t.Errorf("with its key: %s", response.Status)
	}
}

// TestKeysAreAudited: who has access from when on is in the audit and in its file, without secrets.
func TestKeysAreAudited(t *testing.T) {
	secret, path := keys(t)
	file := filepath.Join(t.TempDir(), "audit.ndjson")
	own := redistest.Start(t).Client()
	running(t, func(c *Config) { c.KeysFile, c.AuditFile, c.API.Redis = path, file, own })
	other, hash := api.NewKey()
	write(t, path, []byte("keys: [{id: more, hash: "+hash.String()+", scopes: [enqueue], tenants: [acme]}]"))
	var entries []operate.AuditEntry
	until.Done(t, "an entry", func() bool {
		var err error
		if entries, err = operate.Audit(t.Context(), own, "", 10); err != nil {
			t.Fatal(err)
		}
		return len(entries) > 0
	})
	e := entries[0]
	if len(entries) != 1 || e.Action != "keys" || !strings.HasPrefix(e.Before["shop"], "admin (hash ") || !strings.Contains(e.After["more"], `tenants ["acme"]`) || e.Actor == "" {
		t.Errorf("%+v", entries)
	}
	var text []byte
	for deadline := time.Now().Add(time.Minute); len(text) == 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		text, _ = os.ReadFile(file)
	}
	if told := string(text) + fmt.Sprint(entries); !strings.Contains(string(text), `"action":"keys"`) || strings.Contains(told, secret) || strings.Contains(told, other) {
		t.Errorf("the file has %s", text)
	}
}

func keys(t *testing.T) (secret, path string) {
	t.Helper()
	secret, hash := api.NewKey()
	path = filepath.Join(t.TempDir(), "keys.yaml")
	write(t, path, []byte("keys: [{id: shop, hash: "+hash.String()+", scopes: [admin]}]"))
	return secret, path
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWrongSettings(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for want, change := range map[string]func(*Config){
		"no such file":           func(c *Config) { c.CertFile, c.KeyFile = "x", "y" },
		"HEADGATE_API_KEYS_FILE": func(c *Config) { c.KeysFile = "/none.yaml" },
		"HEADGATE_HTTP_ADDR":     func(c *Config) { c.Addr = taken.Addr().String() },
		"HEADGATE_ADMIN_ADDR":    func(c *Config) { c.AdminAddr = taken.Addr().String() },
	} {
		if s, err := opened(t, change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
			if s != nil {
				s.Close()
			}
		}
	}
	s, err := opened(t, func(c *Config) { c.Addr, c.NextFree = taken.Addr().String(), true })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Addr() == taken.Addr().String() {
		t.Error("it listens where somebody does")
	}
}

// pair writes a certificate and its key, and returns its serial number.
func pair(t *testing.T, folder string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyText, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, "cert.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
	write(t, filepath.Join(folder, "key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyText}))
}

// A renewed certificate is taken without a restart, and half a pair is not.
func TestTLS(t *testing.T) {
	folder := t.TempDir()
	pair(t, folder, 1)
	logged := make(lines, 100)
	s, _ := running(t, func(c *Config) {
		c.CertFile, c.KeyFile = filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
		c.Logger = slog.New(slog.NewTextHandler(logged, nil))
	})
	serial := func() (int64, string) {
		t.Helper()
		response, err := client(t).Get(s.URL() + "livez")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.TLS.PeerCertificates[0].SerialNumber.Int64(), response.Proto
	}
	if n, proto := serial(); n != 1 || proto != "HTTP/2.0" {
		t.Errorf("certificate %d over %s", n, proto)
	}
	key, err := os.ReadFile(filepath.Join(folder, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	pair(t, folder, 2)
	whole, err := os.ReadFile(filepath.Join(folder, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, "key.pem"), key) // the new certificate beside the old key
	logged.await(t, "the certificate was not taken")
	if n, _ := serial(); n != 1 {
		t.Errorf("certificate %d; half a pair was taken", n)
	}
	write(t, filepath.Join(folder, "key.pem"), append(whole, '\n'))
	logged.await(t, "the certificate was read again")
	if n, _ := serial(); n != 2 {
		t.Errorf("certificate %d; the new one was not taken", n)
	}
	old := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}
	if conn, err := tls.Dial("tcp", s.Addr(), old); err == nil {
		conn.Close()
		t.Error("TLS 1.1 is taken")
	}
}

// lines are what a server logs.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// await waits until the server has logged something.
func (l lines) await(t *testing.T, text string) {
	t.Helper()
	for {
		select {
		case line := <-l:
			if strings.Contains(line, text) {
				return
			}
		case <-time.After(time.Minute):
			t.Fatalf("it does not log %q", text)
		}
	}
}

// The end of a server ends its streams, and does not wait for their clients.
func TestEndWithStreams(t *testing.T) {
	s, stop := running(t, nil)
	response, err := client(t).Get(s.URL() + "api/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	began := time.Now()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took >= maxEnding {
		t.Errorf("the end took %v", took)
	}
	if _, err := io.ReadAll(response.Body); err != nil {
		t.Errorf("the stream broke off: %v", err)
	}
}

func TestLargeHeaders(t *testing.T) {
	s, _ := running(t, nil)
	request, err := http.NewRequestWithContext(t.Context(), "GET", s.URL()+"livez", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Large", strings.Repeat("x", 64<<10))
	response, err := client(t).Do(request)
	if err != nil {
		return // the connection was cut
	}
	response.Body.Close()
	if response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%s", response.Status)
	}
}

// A listener that fails ends the other one, and its error is the server's.
func TestListenerFails(t *testing.T) {
	for name, listener := range map[string]func(*Server) net.Listener{
		"main":  func(s *Server) net.Listener { return s.main },
		"admin": func(s *Server) net.Listener { return s.admin },
	} {
		s, err := opened(t, func(c *Config) { c.AdminAddr = "127.0.0.1:0" })
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- s.Run(t.Context()) }()
		for _, url := range []string{s.URL(), "http://" + s.AdminAddr() + "/"} {
			get(t, url)
		}
		broken := listener(s)
		broken.Close()
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "serve "+broken.Addr().String()) {
			t.Errorf("%s: it ended with %v", name, err)
		}
	}
}
