package webhook

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/internal/test/outcomes"
	"github.com/headgate/headgate/internal/test/silent"
)

var call = clients.Call{Job: "018f", Tenant: "Ü", Attempt: 2, IdempotencyKey: "acme:1"}

func newSender(t testing.TB, config Config) *Sender {
	config.AllowPrivate = true
	s := New(config)
	t.Cleanup(s.Close)
	return s
}

func newServer(t testing.TB, handler http.HandlerFunc) *httptest.Server {
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	return server
}

// kind is [outcomes.Of]; "private" is a private address, for which the endpoint is held.
func kind(err error) string {
	if _, private := errors.AsType[*PrivateError](err); private {
		throttled, is := errors.AsType[*clients.ThrottledError](err)
		if !is {
			return "private, but nothing is held"
		}
		if who, length, named := throttled.Holds(); who != clients.OfEndpoint || length != clients.KeyPause || !named {
			return "private, but it is not the endpoint that is held"
		}
		return "private"
	}
	return outcomes.Of(err)
}

func TestAnswers(t *testing.T) {
	date := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) // a receiver whose clock is far ahead
	later := date.Add(2 * time.Minute).Format(http.TimeFormat)
	const (
		std   = "Standard Webhooks 1.0.0, Delivery success and failure"
		after = "RFC 9110, 10.2.3, Retry-After"
		idem  = "draft-ietf-httpapi-idempotency-key-header-07, 2.7"
		ours  = "what package webhook promises"
	)
	tests := map[string]struct {
		status int
		header string // Retry-After
		body   string
		want   string
		after  time.Duration
		text   string
		source string
	}{
		"200":                  {status: 200, want: "ok", source: std},
		"201":                  {status: 201, want: "ok", source: std},
		"202, body":            {status: 202, body: "taken", want: "ok", source: std},
		"204":                  {status: 204, want: "ok", source: std},
		"299":                  {status: 299, want: "ok", source: "RFC 9110, 15: an unknown status is as the x00 of its class"},
		"300":                  {status: 300, want: "permanent", source: std},
		"301":                  {status: 301, want: "permanent", text: "answered 301, and redirects are not followed", source: std},
		"302":                  {status: 302, want: "permanent", text: "answered 302, and redirects are not followed", source: std},
		"304":                  {status: 304, want: "permanent", source: "RFC 9110, 15.4.5: for conditional requests, which are not made"},
		"307":                  {status: 307, want: "permanent", source: std},
		"308":                  {status: 308, want: "permanent", source: std},
		"400":                  {status: 400, body: "no\r\n\x1b[2Jsuch  thing", want: "permanent", text: `answered 400: "no [2Jsuch thing"`, source: "RFC 9110, 15.5.1"},
		"401":                  {status: 401, want: "permanent", source: "RFC 9110, 15.5.2: lacks valid credentials"},
		"402":                  {status: 402, want: "permanent", source: "RFC 9110, 15.5.3"},
		"403":                  {status: 403, want: "permanent", source: "RFC 9110, 15.5.4: not to be repeated with the same credentials"},
		"404":                  {status: 404, want: "permanent", text: "answered 404", source: "RFC 9110, 15.5.5"},
		"405":                  {status: 405, want: "permanent", source: "RFC 9110, 15.5.6"},
		"407":                  {status: 407, want: "permanent", source: "RFC 9110, 15.5.8: there is no proxy of ours"},
		"408":                  {status: 408, want: "retryable", source: "RFC 9110, 15.5.9: may be repeated"},
		"409":                  {status: 409, want: "retryable", source: idem + ": an earlier attempt is under way"},
		"410":                  {status: 410, want: "permanent", text: "answered 410: the endpoint is permanently gone; disable it", source: std},
		"410, with a wait":     {status: 410, header: "7", body: "bye", want: "permanent", text: "disable it: \"bye\"", source: std},
		"411":                  {status: 411, want: "permanent", source: "RFC 9110, 15.5.12"},
		"413":                  {status: 413, want: "permanent", source: "RFC 9110, 15.5.14"},
		"415":                  {status: 415, want: "permanent", source: "RFC 9110, 15.5.16"},
		"421":                  {status: 421, want: "permanent", source: "RFC 9110, 15.5.20"},
		"422":                  {status: 422, want: "permanent", source: idem + ": the key stood for another body"},
		"425":                  {status: 425, want: "retryable", source: "RFC 8470, 5.2: may be repeated"},
		"429":                  {status: 429, want: "throttled", source: "RFC 6585, 4"},
		"429, seconds":         {status: 429, header: "7", want: "throttled", after: 7 * time.Second, source: "RFC 6585, 4"},
		"429, fraction":        {status: 429, header: "0.5", want: "throttled", after: 500 * time.Millisecond, source: ours},
		"429, date":            {status: 429, header: later, want: "throttled", after: 2 * time.Minute, source: after},
		"429, RFC 850 date":    {status: 429, header: date.Add(time.Minute).Format("Monday, 02-Jan-06 15:04:05 GMT"), want: "throttled", after: time.Minute, source: "RFC 9110, 5.6.7, HTTP-date"},
		"429, far date":        {status: 429, header: date.AddDate(50, 0, 0).Format(http.TimeFormat), want: "throttled", after: time.Hour, source: ours},
		"429, past":            {status: 429, header: "Wed, 21 Oct 2015 07:28:00 GMT", want: "throttled", source: after},
		"429, absurd":          {status: 429, header: "999999999999", want: "throttled", after: time.Hour, source: ours},
		"429, endless":         {status: 429, header: strings.Repeat("9", 4000), want: "throttled", after: time.Hour, source: ours},
		"429, negative":        {status: 429, header: "-5", want: "throttled", source: after},
		"429, exponent":        {status: 429, header: "1e9", want: "throttled", source: after},
		"429, nonsense":        {status: 429, header: "soon", want: "throttled", source: after},
		"431":                  {status: 431, want: "permanent", source: "RFC 6585, 5"},
		"451":                  {status: 451, want: "permanent", source: "RFC 7725, 3"},
		"499":                  {status: 499, want: "permanent", source: "RFC 9110, 15: an unknown status is as the x00 of its class"},
		"500":                  {status: 500, body: strings.Repeat("x", 1000), want: "retryable", text: "answered 500: \"" + strings.Repeat("x", 200) + "…", source: "RFC 9110, 15.6.1"},
		"500, with a wait":     {status: 500, header: "7", want: "retryable", source: after + ": not for 500"},
		"501":                  {status: 501, want: "retryable", source: "RFC 9110, 15.6.2"},
		"502":                  {status: 502, want: "retryable", source: std},
		"502, with a wait":     {status: 502, header: "7", want: "throttled", after: 7 * time.Second, source: std},
		"503":                  {status: 503, want: "retryable", source: "RFC 9110, 15.6.4"},
		"503, with a wait":     {status: 503, header: "7", want: "throttled", after: 7 * time.Second, source: std},
		"504":                  {status: 504, want: "retryable", source: std},
		"504, with a wait":     {status: 504, header: "7", want: "throttled", after: 7 * time.Second, source: std},
		"507":                  {status: 507, want: "retryable", source: "RFC 4918, 11.5"},
		"529":                  {status: 529, want: "retryable", source: "RFC 9110, 15: an unknown status is as the x00 of its class"},
		"599":                  {status: 599, want: "retryable", source: "RFC 9110, 15: an unknown status is as the x00 of its class"},
		"600":                  {status: 600, want: "permanent", source: "RFC 9110, 15: not a valid status"},
		"repeats what it got":  {status: 400, body: "bad token s3cr3t-token at /hooks/T0KEN?sig=abcdef", want: "permanent", text: `answered 400: "bad token … at …?…"`, source: ours},
		"binary":               {status: 400, body: "\xff\xfe\x00ü", want: "permanent", text: `answered 400: "?? ü"`, source: ours},
		"endless, not for us":  {status: 500, body: strings.Repeat("y", 1<<20), want: "retryable", source: ours},
		"endless, but taken":   {status: 200, body: strings.Repeat("y", 1<<20), want: "ok", source: ours},
		"an empty Retry-After": {status: 503, header: " ", want: "retryable", source: after},
	}
	s := newSender(t, Config{})
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			calls := 0
			server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				calls++
				w.Header().Set("Date", date.Format(http.TimeFormat))
				if tt.header != "" {
					w.Header().Set("Retry-After", tt.header)
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tt.status)
				io.WriteString(w, tt.body)
			})
			err := s.Send(t.Context(), call, Request{
				URL: server.URL + "/hooks/T0KEN?sig=abcdef", Headers: map[string]string{"Authorization": "s3cr3t-token"},
			})
			if got := kind(err); got != tt.want || calls != 1 {
				t.Fatalf("%s after %d calls; want %s: %v", got, calls, tt.want, err)
			}
			if throttled, ok := errors.AsType[*clients.ThrottledError](err); ok {
				if who, length, _ := throttled.Holds(); who != clients.OfEndpoint || length != tt.after || throttled.WholeAccount() {
					t.Errorf("%s waits for %v; want the endpoint for %v", who, length, tt.after)
				}
			}
			if err == nil {
				return
			}
			if gone, is := errors.AsType[*GoneError](err); is != (tt.status == 410) || is && gone.Host != strings.TrimPrefix(server.URL, "http://") {
				t.Errorf("gone: %+v", gone)
			}
			if !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%q; want %q in it", err, tt.text)
			}
			for _, secret := range []string{"s3cr3t", "T0KEN", "sig="} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%q gives %s away", err, secret)
				}
			}
		})
	}
}

// A receiver that is being deployed answers 404 for a while. Its jobs are tried again,
// ever more slowly and for an hour, and then archived.
func TestNotFound(t *testing.T) {
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) })
	for name, tt := range map[string]struct {
		config time.Duration
		age    time.Duration // since the first attempt; -1: nobody knows
		want   string
		after  time.Duration
	}{
		"first":              {0, 0, "postponed", 5 * time.Second},
		"10 s later":         {0, 10 * time.Second, "postponed", 10 * time.Second},
		"2 min later":        {0, 2 * time.Minute, "postponed", 2 * time.Minute},
		"20 min later":       {0, 20 * time.Minute, "postponed", 5 * time.Minute},
		"the last time":      {0, 58 * time.Minute, "postponed", 2 * time.Minute},
		"an hour later":      {0, time.Hour, "permanent", 0},
		"clocks apart":       {0, -time.Minute, "postponed", 5 * time.Second},
		"nobody knows":       {0, -1, "permanent", 0},
		"never":              {-1, 0, "permanent", 0},
		"a day: later":       {24 * time.Hour, 2 * time.Hour, "postponed", 5 * time.Minute},
		"a day: a day later": {24 * time.Hour, 24 * time.Hour, "permanent", 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSender(t, Config{RetryNotFound: tt.config})
			now := time.Now()
			s.now = func() time.Time { return now }
			c := call
			if tt.age != -1 {
				c.First = now.Add(-tt.age)
			}
			err := s.Send(t.Context(), c, Request{URL: server.URL})
			postponed, is := errors.AsType[*clients.PostponedError](err)
			if is {
				if got := postponed.Until.Sub(now); got != tt.after || !postponed.KeepsFirst() {
					t.Errorf("postponed for %v, first is kept: %v; want %v", got, postponed.KeepsFirst(), tt.after)
				}
			}
			if _, permanent := errors.AsType[*clients.PermanentError](err); permanent == is {
				t.Errorf("postponed %v, permanent %v", is, permanent)
			}
			if is != (tt.want == "postponed") || !is && kind(err) != tt.want || !strings.Contains(err.Error(), "answered 404") {
				t.Errorf("%v; want %s", err, tt.want)
			}
		})
	}
}

func TestWhatIsSent(t *testing.T) {
	var got *http.Request
	var body []byte
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	})
	s := newSender(t, Config{UserAgent: "tester"})
	for name, tt := range map[string]struct {
		request     Request
		method      string
		contentType string
		length      int64
	}{
		"post":            {Request{Body: json.RawMessage(`{"a": 1 }`)}, "POST", "application/json", 9},
		"post of nothing": {Request{}, "POST", "", 0},
		"get":             {Request{Method: "GET"}, "GET", "", 0},
		"head":            {Request{Method: "HEAD"}, "HEAD", "", 0},
		"options":         {Request{Method: "OPTIONS"}, "OPTIONS", "", 0},
		"delete":          {Request{Method: "DELETE"}, "DELETE", "", 0},
		"other method":    {Request{Method: "PROPFIND", Text: "<propfind/>", Headers: map[string]string{"Content-Type": "text/xml"}}, "PROPFIND", "text/xml", 11},
		"text":            {Request{Text: "a=1"}, "POST", "text/plain; charset=utf-8", 3},
		"own type":        {Request{Method: "PUT", Body: json.RawMessage(`[]`), Headers: map[string]string{"content-type": "application/x", "user-agent": "mine"}}, "PUT", "application/x", 2},
	} {
		t.Run(name, func(t *testing.T) {
			tt.request.URL = server.URL + "/p%2Fq?x=1&y=%20#fragment"
			if err := s.Send(t.Context(), call, tt.request); err != nil {
				t.Fatal(err)
			}
			if got.Method != tt.method || got.RequestURI != "/p%2Fq?x=1&y=%20" {
				t.Errorf("%s %s", got.Method, got.RequestURI)
			}
			if got.ContentLength != tt.length || len(got.TransferEncoding) > 0 || string(body) != string(tt.request.body()) {
				t.Errorf("%d bytes announced, %v, body %q", got.ContentLength, got.TransferEncoding, body)
			}
			agent := "tester"
			if own := tt.request.Headers["user-agent"]; own != "" {
				agent = own
			}
			for header, want := range map[string]string{
				"Headgate-Job": "018f", "Headgate-Tenant": "%C3%9C", "Headgate-Attempt": "2", "Idempotency-Key": "acme:1",
				"Content-Type": tt.contentType, "User-Agent": agent, "Accept-Encoding": "",
			} {
				if value := got.Header.Get(header); value != want {
					t.Errorf("%s: %q; want %q", header, value, want)
				}
			}
		})
	}
}

// A connection that breaks after the request arrived must not be answered with a
// second call, whatever net/http holds to be safe to repeat.
func TestLostAfterItWasSent(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "QUERY"} {
		t.Run(method, func(t *testing.T) {
			var calls atomic.Int32
			server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if calls.Add(1) > 1 {
					panic(http.ErrAbortHandler)
				}
			})
			s := newSender(t, Config{})
			if err := s.Send(t.Context(), call, Request{URL: server.URL, Method: method}); err != nil {
				t.Fatal(err)
			}
			// Now there is a kept connection, on which net/http would repeat.
			err := s.Send(t.Context(), call, Request{URL: server.URL, Method: method})
			if kind(err) != "unknown" || calls.Load() != 2 {
				t.Errorf("%s after %d calls: %v", kind(err), calls.Load(), err)
			}
		})
	}
}

func TestTimeoutAfterItWasSent(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	silent.Call(t, func(timeout time.Duration) bool {
		var calls atomic.Int32
		server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			if silent.Whole(r) {
				calls.Add(1)
			}
			<-hold
		})
		err := newSender(t, Config{Timeout: timeout}).Send(t.Context(), call, Request{URL: server.URL, Body: json.RawMessage(`{}`)})
		if calls.Load() > 0 && kind(err) != "unknown" || !strings.Contains(err.Error(), "gave up after "+timeout.String()) {
			t.Errorf("%s: %v", kind(err), err)
		}
		return kind(err) == "unknown"
	})
}

func TestWorkerEnds(t *testing.T) {
	arrived, hold := make(chan struct{}, 1), make(chan struct{})
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) { arrived <- struct{}{}; <-hold })
	defer close(hold)
	s := newSender(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	err := s.Send(ctx, call, Request{URL: server.URL})
	if kind(err) != "unknown" || errors.Is(err, context.Canceled) {
		t.Errorf("after it was sent: %s: %v", kind(err), err)
	}
	err = s.Send(ctx, call, Request{URL: server.URL})
	if kind(err) != "error" || !errors.Is(err, context.Canceled) {
		t.Errorf("before it was sent: %s: %v", kind(err), err)
	}
}

func TestNoConnection(t *testing.T) {
	server := newServer(t, nil)
	url := server.URL
	server.Close()
	s := newSender(t, Config{Timeout: 5 * time.Second})
	for name, url := range map[string]string{"refused": url, "no such name": "http://headgate.invalid/s3cr3t"} {
		err := s.Send(t.Context(), call, Request{URL: url})
		if kind(err) != "retryable" || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %s: %v", name, kind(err), err)
		}
	}
}

func TestTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 {
			t.Errorf("over %s", r.Proto)
		}
		if r.URL.Path == "/lost" {
			panic(http.ErrAbortHandler)
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	roots := server.Client().Transport.(*http.Transport).TLSClientConfig

	if err := newSender(t, Config{}).Send(t.Context(), call, Request{URL: server.URL}); kind(err) != "retryable" {
		t.Errorf("unknown authority: %s: %v", kind(err), err)
	}
	trusting := newSender(t, Config{TLS: roots})
	if err := trusting.Send(t.Context(), call, Request{URL: server.URL}); err != nil {
		t.Error(err)
	}
	if err := trusting.Send(t.Context(), call, Request{URL: server.URL + "/lost"}); kind(err) != "unknown" {
		t.Errorf("lost: %s: %v", kind(err), err)
	}
	wrong := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	if err := trusting.Send(t.Context(), call, Request{URL: wrong}); kind(err) != "permanent" {
		t.Errorf("certificate for another name: %s: %v", kind(err), err)
	}
}

func TestPrivateAddresses(t *testing.T) {
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) { t.Error("it got through") })
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	s := New(Config{Timeout: 10 * time.Second})
	defer s.Close()
	for _, host := range []string{
		"127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]",
		"10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "[fe80::1]", "[fd00:ec2::254]",
	} {
		err := s.Send(t.Context(), call, Request{URL: "http://" + host + ":" + port + "/"})
		if kind(err) != "private" || !strings.Contains(err.Error(), "not a public internet address") {
			t.Errorf("%s: %s: %v", host, kind(err), err)
		}
	}
	// Spellings that only a resolver understands must not get through either.
	for _, host := range []string{"127.1", "2130706433", "0x7f.1", "0177.0.0.1"} {
		if err := s.Send(t.Context(), call, Request{URL: "http://" + host + ":" + port + "/"}); err == nil {
			t.Errorf("%s got through", host)
		}
	}
}

func TestBodyTooLarge(t *testing.T) {
	s := newSender(t, Config{MaxBody: 4})
	err := s.Send(t.Context(), call, Request{URL: "http://127.0.0.1:1", Body: json.RawMessage(`"1234"`)})
	if kind(err) != "permanent" || err.Error() != "body: 6 bytes; the maximum is 4" {
		t.Errorf("%s: %v", kind(err), err)
	}
}

func TestHostileReceivers(t *testing.T) {
	tests := map[string]struct {
		answer string
		want   string
		stays  bool // the receiver says nothing more and does not close the connection
	}{
		"not http":        {"SSH-2.0-OpenSSH\x1b[2J\r\n", "unknown", false},
		"endless headers": {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n", 10_000), "unknown", false},
		"half a body":     {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "ok", false},
		"half a refusal":  {"HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\nhalf", "permanent", false},
		"other protocol":  {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", "permanent", true},
		"nothing":         {"", "unknown", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var serving sync.WaitGroup
			defer serving.Wait()
			defer listener.Close()
			serving.Go(func() {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					io.Copy(io.Discard, r.Body)
				}
				io.WriteString(conn, tt.answer)
				if tt.stays {
					conn.SetReadDeadline(time.Now().Add(time.Minute))
					if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
						t.Error("the call waits for a receiver that says nothing more")
					}
				}
			})
			err = newSender(t, Config{Timeout: 10 * time.Second}).Send(t.Context(), call, Request{URL: "http://" + listener.Addr().String()})
			if kind(err) != tt.want || err != nil && (len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\x1b\r\n")) {
				t.Errorf("%s: %q", kind(err), err)
			}
		})
	}
}

// Hundreds at once must get by with as many connections, kept over rounds.
func TestConnectionsAreKept(t *testing.T) {
	const together = 200
	var conns atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	s := newSender(t, Config{})
	var senders sync.WaitGroup
	for range together {
		senders.Go(func() {
			for range 10 {
				if err := s.Send(t.Context(), call, Request{URL: server.URL, Body: json.RawMessage(`{}`)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	senders.Wait()
	// net/http may dial for a call that then finds a free connection.
	if got := conns.Load(); got > 2*together {
		t.Errorf("%d connections for %d at once", got, together)
	}
}

func ExampleNew() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "slow down", http.StatusTooManyRequests)
	}))
	defer server.Close()
	sender := New(Config{AllowPrivate: true})
	defer sender.Close()
	err := sender.Send(context.Background(), clients.Call{Job: "1", Attempt: 1}, Request{URL: server.URL})
	throttled, _ := errors.AsType[*clients.ThrottledError](err)
	fmt.Println(throttled != nil)
	// Output: true
}

func BenchmarkSend(b *testing.B) {
	server := newServer(b, func(w http.ResponseWriter, r *http.Request) {})
	s := newSender(b, Config{})
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := s.Send(b.Context(), call, Request{URL: server.URL, Body: json.RawMessage(`{}`)}); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// TestAtFault: which answers say that the receiver is down, and not that it would not
// take this call.
func TestAtFault(t *testing.T) {
	for status, down := range map[int]bool{408: false, 409: false, 425: false, 500: true, 502: true, 503: true, 507: true, 404: false, 302: false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		s := New(Config{AllowPrivate: true})
		failed, got := errors.AsType[*clients.UnavailableError](s.Send(t.Context(), call, Request{URL: server.URL}))
		if got != down || got && failed.Unreachable() {
			t.Errorf("%d: down %v", status, got)
		}
		server.Close()
		s.Close() // or the call goes out over a connection that is about to end
		err := s.Send(t.Context(), call, Request{URL: server.URL})
		failed, got = errors.AsType[*clients.UnavailableError](err)
		if !got || !failed.Unreachable() {
			t.Errorf("nobody there, and it is not unreachable: %v", err)
		}
		s.Close()
	}
}
