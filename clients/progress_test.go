package clients_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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
	for _, method := range []string{http.MethodPost, http.MethodGet} {
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
			r.Header.Set(clients.HeaderIdempotencyKey, "k")
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
			t.Errorf("%s: %d calls, %v; want the second to fail", method, calls.Load(), err)
		}
		server.Close()
	}
}
