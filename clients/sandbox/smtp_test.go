package sandbox_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/until"
)

func newSMTP(t testing.TB, config sandbox.Config) *sandbox.SMTP {
	t.Helper()
	s, err := sandbox.NewSMTP(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// dialogue speaks SMTP line by line.
type dialogue struct {
	t    testing.TB
	text *textproto.Conn
}

func dial(t testing.TB, s *sandbox.SMTP) *dialogue {
	t.Helper()
	conn, err := net.DialTimeout("tcp", s.Addr(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	text := textproto.NewConn(conn)
	t.Cleanup(func() { text.Close() })
	d := &dialogue{t, text}
	d.want(220)
	d.say(250, "EHLO client.invalid")
	return d
}

func (d *dialogue) want(code int) string {
	d.t.Helper()
	_, message, err := d.text.ReadResponse(code)
	if err != nil {
		d.t.Fatalf("want %d: %v", code, err)
	}
	return message
}

func (d *dialogue) say(code int, line string) string {
	d.t.Helper()
	if err := d.text.PrintfLine("%s", line); err != nil {
		d.t.Fatal(err)
	}
	return d.want(code)
}

// message sends headers and a body up to, not including, the reply to it.
func (d *dialogue) message(lines ...string) {
	d.t.Helper()
	d.say(250, "MAIL FROM:<shop@Example.COM>")
	d.say(250, "RCPT TO:<you@example.net>")
	d.say(354, "DATA")
	for _, line := range append(lines, "", "body", ".") {
		if err := d.text.PrintfLine("%s", line); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *dialogue) closed() {
	d.t.Helper()
	if line, err := d.text.ReadLine(); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		d.t.Errorf("want a closed connection, got %q, %v", line, err)
	}
}

func TestSMTPRecordsAndPolices(t *testing.T) {
	s := newSMTP(t, sandbox.Config{Limit: sandbox.Limit{Rate: 0.5, Burst: 1}})
	d := dial(t, s)
	d.message("Subject: hi", "Headgate-Tenant:", " %C3%9C", "Headgate-Job: 018f", "Headgate-Attempt: 2", "Message-ID: <x@y>")
	d.want(250)
	d.message("Headgate-Tenant: %C3%9C")
	if text := d.want(450); !strings.HasPrefix(text, "4.7.0 rate limit exceeded, try again in 2 seconds") {
		t.Errorf("%q", text)
	}
	d.message("Subject: no tenant") // the same connection goes on
	d.want(250)
	d.say(221, "QUIT")

	calls := s.Calls()
	for i, want := range []sandbox.Call{
		{Tenant: "Ü", Job: "018f", Attempt: "2", Key: "<x@y>", Accepted: true, Status: 250},
		{Tenant: "Ü", Status: 450},
		{Tenant: "example.com", Accepted: true, Status: 250},
	} {
		want.At = calls[i].At
		if calls[i] != want {
			t.Errorf("call %d is %+v; want %+v", i, calls[i], want)
		}
	}
}

func TestSMTP421EndsTheConnection(t *testing.T) {
	s := newSMTP(t, sandbox.Config{Limit: sandbox.Limit{Burst: 1}, ThrottleCode: 421})
	d := dial(t, s)
	d.message()
	d.want(250)
	d.message()
	d.want(421)
	d.closed()
}

func TestSMTPFaults(t *testing.T) {
	s := newSMTP(t, sandbox.Config{})
	d := dial(t, s)
	s.Fail(1, 554)
	d.message()
	d.want(554)
	s.Fail(1, 200) // not a failure of SMTP
	d.message()
	d.want(451)
	s.Drop(1)
	d.message()
	d.closed()
	if got := s.Stats()["example.com"]; got != (sandbox.Stats{Failed: 3}) {
		t.Errorf("%+v", got)
	}
}

func TestSMTPHang(t *testing.T) {
	s := newSMTP(t, sandbox.Config{})
	release := s.Hang()
	d := dial(t, s)
	d.message()
	until.Done(t, "a call", func() bool { return len(s.Calls()) == 1 })
	release()
	d.want(250)

	s.Hang()
	d.message()
	until.Done(t, "two calls", func() bool { return len(s.Calls()) == 2 })
	s.Close()
	d.closed()
}

func TestSMTPAuth(t *testing.T) {
	server := httptest.NewTLSServer(nil) // for its certificate
	defer server.Close()
	s := newSMTP(t, sandbox.Config{Username: "u", Password: "p", TLS: &tls.Config{Certificates: server.TLS.Certificates}})
	d := dial(t, s)
	d.say(530, "MAIL FROM:<a@b.c>")
	d.say(535, "AUTH PLAIN AHUAeA==") // u, x
	d.say(235, "AUTH PLAIN AHUAcA==") // u, p
	d.message()
	d.want(250)
	if reply := d.say(250, "EHLO again"); !strings.Contains(reply, "STARTTLS") {
		t.Errorf("%q", reply)
	}
}

func TestSMTPHostileMessages(t *testing.T) {
	s := newSMTP(t, sandbox.Config{})
	d := dial(t, s)
	for i, lines := range [][]string{
		{"not a header at all"},
		{"Headgate-Tenant: " + strings.Repeat("x", 1900)},
		{strings.Repeat("X-Many: 1\r\n", 20_000)},
		{"Headgate-Tenant: %zz", "Headgate-Attempt: many"},
		{"X: \xff\x00\x1b[0m"},
	} {
		d.message(lines...)
		d.want(250)
		if got := len(s.Calls()); got != i+1 {
			t.Fatalf("%d calls after message %d", got, i)
		}
	}
	for _, call := range s.Calls() {
		if len(call.Tenant) > 512 {
			t.Errorf("a tenant of %d bytes is kept", len(call.Tenant))
		}
	}
	dial(t, s).text.PrintfLine("%s", strings.Repeat("x", 10_000)) // a line without end
	idle := dial(t, s)
	s.Close() // must not wait for either
	idle.closed()
}

func ExampleNewSMTP() {
	provider, err := sandbox.NewSMTP()
	if err != nil {
		panic(err)
	}
	defer provider.Close()
	host, _, _ := net.SplitHostPort(provider.Addr())
	fmt.Println(host)
	// Output: 127.0.0.1
}
