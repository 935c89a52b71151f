package clients_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/clients"
)

// counted is a transport whose connections are, below TLS.
func counted(t *testing.T, server *httptest.Server) *http.Transport {
	transport := &http.Transport{
		TLSClientConfig: server.Client().Transport.(*http.Transport).TLSClientConfig,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return clients.Counted(conn), nil
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// TestProgress: nothing began where the request was never written, it is not sent
// while its body cannot be read, and it is when the answer is lost.
func TestProgress(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/lost" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.Copy(io.Discard, r.Body) // or the answer comes before the body breaks
	})
	server, plain := httptest.NewTLSServer(handler), httptest.NewServer(handler)
	defer server.Close()
	defer plain.Close()
	transport := counted(t, server)
	for _, test := range []struct {
		name, url   string
		body        interface{ Read([]byte) (int, error) }
		began, sent bool
	}{
		{"answered", server.URL, strings.NewReader("x"), true, true},
		{"on a kept connection", server.URL, strings.NewReader("x"), true, true},
		{"without TLS", plain.URL, strings.NewReader("x"), true, true},
		{"nothing on its kept connection", plain.URL, strings.NewReader("less than it says"), false, false},
		{"the answer is lost", server.URL + "/lost", strings.NewReader("x"), true, true},
		{"half of a body", server.URL, &brokenBody{}, true, false},
		{"nobody is there", "http://127.0.0.1:1", strings.NewReader("x"), false, false},
	} {
		var p clients.Progress
		r, err := http.NewRequestWithContext(p.Watch(t.Context()), http.MethodPost, test.url, test.body)
		if err != nil {
			t.Fatal(err)
		}
		if !test.sent {
			r.ContentLength, r.GetBody = 1<<20, nil
		}
		if response, err := transport.RoundTrip(r); err == nil {
			response.Body.Close()
		}
		if p.Began() != test.began || p.Sent() != test.sent {
			t.Errorf("%s: began %v, sent %v; want %v, %v", test.name, p.Began(), p.Sent(), test.began, test.sent)
		}
	}
}

// brokenBody gives more than a buffer holds, and then fails.
type brokenBody struct{ given int }

func (b *brokenBody) Read(p []byte) (int, error) {
	if b.given += len(p); b.given > 256<<10 {
		return 0, errors.New("the body cannot be read on")
	}
	return len(p), nil
}

// TestNeverRepeat: a kept connection that breaks under a request costs that
// request, and is not made up for by another one.
func TestNeverRepeat(t *testing.T) {
	for _, header := range []string{clients.HeaderIdempotencyKey, "X-Idempotency-Key", ""} {
		method := http.MethodPost
		if header == "" {
			method = http.MethodGet
		}
		var calls atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calls.Add(1) > 1 {
				panic(http.ErrAbortHandler)
			}
		}))
		transport := counted(t, server)
		ask := func() error {
			r, err := http.NewRequestWithContext(t.Context(), method, server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			if header != "" {
				r.Header.Set(header, "k")
			}
			clients.NeverRepeat(r)
			response, err := transport.RoundTrip(r)
			if err == nil {
				response.Body.Close()
			}
			return err
		}
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		if err := ask(); err == nil || calls.Load() != 2 {
			t.Errorf("%s with %q: %d calls, %v; want the second to fail", method, header, calls.Load(), err)
		}
		server.Close()
	}
}

// TestProgressBehindAProxy: a call that went through a proxy with TLS of its own has been sent.
func TestProgressBehindAProxy(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer server.Close()
	proxy := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		there, err := net.Dial("tcp", r.Host)
		if err != nil {
			t.Error(err)
			return
		}
		defer there.Close()
		here, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer here.Close()
		_, _ = io.WriteString(here, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(there, here) }()
		_, _ = io.Copy(here, there)
	}))
	defer proxy.Close()
	transport := counted(t, server)
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport.Proxy = http.ProxyURL(address)
	var p clients.Progress
	r, err := http.NewRequestWithContext(p.Watch(t.Context()), http.MethodPost, server.URL, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	if response, err := transport.RoundTrip(r); err == nil {
		response.Body.Close()
		t.Error("it was answered")
	}
	if !p.Began() || !p.Sent() {
		t.Errorf("began %v, sent %v; want both", p.Began(), p.Sent())
	}
}
