package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/clients"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// class is what an error means for a job.
func class(err error) string {
	if err == nil {
		return "ok"
	}
	if _, ok := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); ok {
		return "throttled"
	}
	if _, ok := errors.AsType[interface {
		error
		Permanent() bool
	}](err); ok {
		return "permanent"
	}
	if _, ok := errors.AsType[interface {
		error
		Unknown() bool
	}](err); ok {
		return "unknown"
	}
	if errors.Is(err, context.Canceled) {
		return "canceled"
	}
	return "retryable"
}

func TestOutcomes(t *testing.T) {
	tests := []struct {
		status int
		header map[string]string
		want   string
		after  time.Duration
	}{
		{200, nil, "ok", 0},
		{204, nil, "ok", 0},
		{301, map[string]string{"Location": "http://example.com"}, "permanent", 0},
		{400, nil, "permanent", 0},
		{401, nil, "permanent", 0},
		{404, nil, "permanent", 0},
		{408, nil, "retryable", 0},
		{410, nil, "permanent", 0},
		{425, nil, "retryable", 0},
		{429, nil, "throttled", 0},
		{429, map[string]string{"Retry-After": "7"}, "throttled", 7 * time.Second},
		{429, map[string]string{"Retry-After": "nonsense"}, "throttled", 0},
		{429, map[string]string{"Retry-After": "99999999999"}, "throttled", 24 * time.Hour},
		{500, nil, "retryable", 0},
		{502, nil, "retryable", 0},
		{503, nil, "retryable", 0},
		{503, map[string]string{"Retry-After": "2"}, "throttled", 2 * time.Second},
	}
	for _, test := range tests {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for name, value := range test.header {
				w.Header().Set(name, value)
			}
			w.WriteHeader(test.status)
			if test.status != 204 {
				_, _ = io.WriteString(w, "because\nof \x1b[31mthis")
			}
		}))
		sender := New(Config{AllowPrivate: true})
		err := sender.Send(t.Context(), clients.Call{Job: "j", Tenant: "a", Attempt: 1, IdempotencyKey: "j"}, Request{URL: server.URL + "/secret?token=hush"})
		if got := class(err); got != test.want {
			t.Errorf("%d %v: %s (%v), want %s", test.status, test.header, got, err, test.want)
		}
		if e, ok := errors.AsType[*clients.ThrottledError](err); ok && e.RetryAfter() != test.after {
			t.Errorf("%d %v: after %v, want %v", test.status, test.header, e.RetryAfter(), test.after)
		}
		if err != nil && (strings.Contains(err.Error(), "hush") || strings.ContainsAny(err.Error(), "\n\x1b")) {
			t.Errorf("the error tells too much: %q", err)
		}
		sender.Close()
		server.Close()
	}
}

func TestRequest(t *testing.T) {
	got := make(chan *http.Request, 1)
	body := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got <- r
		body <- string(text)
	}))
	defer server.Close()
	sender := New(Config{AllowPrivate: true})
	defer sender.Close()
	call := clients.Call{Job: "acme:1", Tenant: "ü\r\nX: y", Attempt: 2, IdempotencyKey: "acme:1"}
	err := sender.Send(t.Context(), call, Request{
		URL: server.URL, Method: "PUT", Headers: map[string]string{"X-Own": "1", "Content-Type": "text/plain"}, Body: json.RawMessage(`{"a": 1}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	r := <-got
	if r.Method != "PUT" || <-body != `{"a": 1}` || r.Header.Get("X-Own") != "1" || r.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("request = %s %v", r.Method, r.Header)
	}
	if r.Header.Get("Headgate-Attempt") != "2" || r.Header.Get("Idempotency-Key") != "acme:1" || r.Header.Get("X") != "" ||
		!strings.Contains(r.Header.Get("Headgate-Tenant"), "%0D%0A") {
		t.Errorf("headers = %v", r.Header)
	}
}

func TestNoAnswer(t *testing.T) {
	t.Run("private addresses are refused", func(t *testing.T) {
		sender := New(Config{})
		defer sender.Close()
		for _, url := range []string{"http://127.0.0.1:1/", "http://[::1]:1/", "http://169.254.169.254/latest", "http://10.0.0.1/", "http://localhost:1/", "http://0.0.0.0:1/"} {
			if err := sender.Send(t.Context(), clients.Call{}, Request{URL: url}); class(err) != "permanent" || !strings.Contains(err.Error(), "private") {
				t.Errorf("%s: %v", url, err)
			}
		}
	})
	t.Run("nobody listens", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listener.Close()
		sender := New(Config{AllowPrivate: true})
		defer sender.Close()
		if err := sender.Send(t.Context(), clients.Call{}, Request{URL: "http://" + listener.Addr().String()}); class(err) != "retryable" {
			t.Errorf("%s: %v", class(err), err)
		}
	})
	t.Run("the connection is lost after the request", func(t *testing.T) {
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
		defer server.Close()
		sender := New(Config{AllowPrivate: true})
		defer sender.Close()
		if err := sender.Send(t.Context(), clients.Call{}, Request{URL: server.URL, Body: json.RawMessage(`1`)}); class(err) != "unknown" {
			t.Errorf("%s: %v", class(err), err)
		}
	})
	hanging := func(t *testing.T) (url string, arrived chan struct{}) {
		arrived, release := make(chan struct{}), make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(arrived); <-release }))
		t.Cleanup(func() { close(release); server.Close() })
		return server.URL, arrived
	}
	t.Run("it times out after the request", func(t *testing.T) {
		url, _ := hanging(t)
		sender := New(Config{AllowPrivate: true, Timeout: 50 * time.Millisecond})
		defer sender.Close()
		if err := sender.Send(t.Context(), clients.Call{}, Request{URL: url, Body: json.RawMessage(`1`)}); class(err) != "unknown" {
			t.Errorf("%s: %v", class(err), err)
		}
	})
	t.Run("the worker stops", func(t *testing.T) {
		url, arrived := hanging(t)
		sender := New(Config{AllowPrivate: true})
		defer sender.Close()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-arrived; cancel() }()
		if err := sender.Send(ctx, clients.Call{}, Request{URL: url, Body: json.RawMessage(`1`)}); class(err) != "canceled" {
			t.Errorf("%s: %v", class(err), err)
		}
	})
	t.Run("the body is too large", func(t *testing.T) {
		sender := New(Config{AllowPrivate: true, MaxBody: 3})
		defer sender.Close()
		if err := sender.Send(t.Context(), clients.Call{}, Request{URL: "http://127.0.0.1:1", Body: json.RawMessage(`"1234"`)}); class(err) != "permanent" {
			t.Errorf("%s: %v", class(err), err)
		}
	})
}

func TestValidate(t *testing.T) {
	for what, r := range map[string]Request{
		"url: it is empty":            {},
		"scheme":                      {URL: "ftp://x"},
		"names no host":               {URL: "http:///x"},
		"credentials":                 {URL: "http://user:hush@x/"},
		"not a URL":                   {URL: "http://[::1"},
		"not an HTTP method":          {URL: "http://x", Method: "GE T"},
		"CONNECT is not sent":         {URL: "http://x", Method: "CONNECT"},
		"Host is set by the sender":   {URL: "http://x", Headers: map[string]string{"host": "y"}},
		"Headgate-Job is set":         {URL: "http://x", Headers: map[string]string{"headgate-job": "y"}},
		"Idempotency-Key is set":      {URL: "http://x", Headers: map[string]string{"idempotency-key": "y"}},
		"is not a header's name":      {URL: "http://x", Headers: map[string]string{"a b": "y"}},
		"has control characters":      {URL: "http://x", Headers: map[string]string{"X-A": "y\r\nZ: 1"}},
		"Transfer-Encoding is set by": {URL: "http://x", Headers: map[string]string{"transfer-encoding": "chunked"}},
	} {
		err := r.Validate()
		if err == nil || !strings.Contains(err.Error(), what) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%+v: %v; want %q", r, err, what)
		}
	}
	if err := (Request{URL: "https://example.com/x", Headers: map[string]string{"Authorization": "Bearer x"}}).Validate(); err != nil {
		t.Error(err)
	}
}
