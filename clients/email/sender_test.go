package email

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/outcomes"
	"github.com/headgate/headgate/internal/test/silent"
)

func newSender(t testing.TB, config Config) *Sender {
	t.Helper()
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func newSandbox(t testing.TB, config sandbox.Config) (*sandbox.SMTP, Config) {
	t.Helper()
	provider, err := sandbox.NewSMTP(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { provider.Close() })
	host, port, _ := net.SplitHostPort(provider.Addr())
	n, _ := strconv.Atoi(port)
	return provider, Config{Host: host, Port: n, TLS: TLSNone, LocalName: "client.invalid"}
}

func TestNew(t *testing.T) {
	for name, config := range map[string]Config{
		"no host":    {},
		"host":       {Host: "mx example"},
		"tls":        {Host: "mx", TLS: "yes"},
		"port":       {Host: "mx", Port: 70_000},
		"timeout":    {Host: "mx", Timeout: -1},
		"local name": {Host: "mx", LocalName: "a\r\nMAIL"},
	} {
		if _, err := New(config); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	s := newSender(t, Config{Host: "mx"})
	if s.config.TLS != TLSMandatory || s.config.address() != "mx:587" {
		t.Errorf("%+v", s.config)
	}
	if s := newSender(t, Config{Host: "::1", TLS: TLSImplicit}); s.config.address() != "[::1]:465" {
		t.Errorf("%+v", s.config)
	}
}

func TestSteps(t *testing.T) {
	for name, tt := range map[string]struct {
		verb, reply string
		want        string
		mails       int // that the server may have
	}{
		"taken":                 {"", "", "ok", 1},
		"greeting refuses":      {"hello", "554 5.7.1 go away", "retryable", 0},
		"greeting throttles":    {"hello", "421 4.7.0 too many connections", "account throttled", 0},
		"no greeting":           {"hello", "close", "retryable", 0},
		"sender refused":        {"MAIL", "550 5.7.1 not you", "permanent", 0},
		"sender later":          {"MAIL", "451 4.3.0 later", "retryable", 0},
		"sender throttled":      {"MAIL", "421 4.7.0 rate", "throttled", 0},
		"lost at the sender":    {"MAIL", "close", "retryable", 0},
		"recipient refused":     {"RCPT", "550 5.1.1 no such user", "permanent", 0},
		"recipient throttled":   {"RCPT", "450 4.7.1 slow down", "throttled", 0},
		"lost at the recipient": {"RCPT", "close", "retryable", 0},
		"data refused":          {"DATA", "554 5.5.1 no", "permanent", 0},
		"lost at data":          {"DATA", "close", "retryable", 0},
		"message refused":       {".", "554 5.7.1 spam", "permanent", 1},
		"message throttled":     {".", "452 4.7.0 later", "throttled", 1},
		"lost after all":        {".", "close", "unknown", 1},
		"nonsense after all":    {".", "thanks", "unknown", 1},
	} {
		t.Run(name, func(t *testing.T) {
			server := newScript(t, map[string]string{})
			if tt.verb != "" {
				server.set(tt.verb, tt.reply)
			}
			s := newSender(t, server.config())
			err := s.Send(t.Context(), call, plain())
			if got := outcomes.Of(err); got != tt.want {
				t.Errorf("%s; want %s: %v", got, tt.want, err)
			}
			if _, conns := server.said(); conns != 1 || len(server.mails) != tt.mails {
				t.Errorf("%d connections, %d mails", conns, len(server.mails))
			}
			if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v looks like a call that was never made", err)
			}
		})
	}
}

// A message that the server refuses leaves the connection fit for the next one.
func TestRefusalKeepsTheConnection(t *testing.T) {
	server := newScript(t, map[string]string{"RCPT": "550 5.1.1 no such user"})
	s := newSender(t, server.config())
	s.Send(t.Context(), call, plain())
	server.set("RCPT", "250 ok")
	if err := s.Send(t.Context(), call, plain()); err != nil {
		t.Fatal(err)
	}
	verbs, conns := server.said()
	if want := "hello EHLO MAIL RCPT RSET MAIL RCPT DATA ."; verbs != want || conns != 1 {
		t.Errorf("%s over %d connections; want %s", verbs, conns, want)
	}
}

func TestStaleConnection(t *testing.T) {
	for name, tt := range map[string]struct {
		reply string // to MAIL on the kept connection
		want  string
		conns int
	}{
		"closed":             {"close", "ok", 2},
		"timed out":          {"421 4.4.2 mx timeout exceeded", "ok", 2},
		"timed out, old way": {"421 Idle too long, closing", "ok", 2},
		"throttled":          {"421 4.7.0 too many messages", "throttled", 1},
		"throttled, old way": {"421 too many messages, closing", "throttled", 1},
	} {
		t.Run(name, func(t *testing.T) {
			server := newScript(t, map[string]string{})
			s := newSender(t, server.config())
			if err := s.Send(t.Context(), call, plain()); err != nil {
				t.Fatal(err)
			}
			server.setOnce("MAIL", tt.reply)
			if err := s.Send(t.Context(), call, plain()); outcomes.Of(err) != tt.want {
				t.Errorf("%s; want %s: %v", outcomes.Of(err), tt.want, err)
			}
			if _, conns := server.said(); conns != tt.conns {
				t.Errorf("%d connections; want %d", conns, tt.conns)
			}
			server.hangUp() // what is kept is dead now
			if err := s.Send(t.Context(), call, plain()); err != nil {
				t.Errorf("after a hang-up: %v", err)
			}
		})
	}
}

// Once the sender was accepted there is no second try over another connection.
func TestNoRepeatAfterMail(t *testing.T) {
	server := newScript(t, map[string]string{})
	s := newSender(t, server.config())
	if err := s.Send(t.Context(), call, plain()); err != nil {
		t.Fatal(err)
	}
	server.set(".", "close")
	if err := s.Send(t.Context(), call, plain()); outcomes.Of(err) != "unknown" {
		t.Error(err)
	}
	if _, conns := server.said(); conns != 1 || len(server.mails) != 2 {
		t.Errorf("%d connections, %d mails", conns, len(server.mails))
	}
}

func TestTimeout(t *testing.T) {
	for verb, want := range map[string]string{"hello": "retryable", "MAIL": "retryable", "DATA": "retryable", ".": "unknown"} {
		silent.Call(t, func(timeout time.Duration) bool {
			server := newScript(t, map[string]string{verb: "hang"})
			config := server.config()
			config.Timeout = timeout
			err := newSender(t, config).Send(t.Context(), call, plain())
			if got := outcomes.Of(err); len(server.hung) > 0 && got != want || !strings.Contains(err.Error(), "gave up after "+timeout.String()) {
				t.Errorf("at %s: %s: %v", verb, got, err)
			}
			return len(server.hung) > 0
		})
	}
}

func TestWorkerEnds(t *testing.T) {
	for verb, want := range map[string]string{"hello": "error", "RCPT": "error", ".": "unknown"} {
		server := newScript(t, map[string]string{verb: "hang"})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-server.hung; cancel() }()
		err := newSender(t, server.config()).Send(ctx, call, plain())
		if got := outcomes.Of(err); got != want || errors.Is(err, context.Canceled) != (want == "error") {
			t.Errorf("at %s: %s: %v", verb, got, err)
		}
	}
}

func TestPool(t *testing.T) {
	server := newScript(t, map[string]string{})
	config := server.config()
	config.MaxPerConn = 3
	s := newSender(t, config)
	for range 7 {
		if err := s.Send(t.Context(), call, plain()); err != nil {
			t.Fatal(err)
		}
	}
	if _, conns := server.said(); conns != 3 {
		t.Errorf("%d connections for 7 messages, 3 on each", conns)
	}
	config.MaxIdle = -1
	s = newSender(t, config)
	for range 2 {
		if err := s.Send(t.Context(), call, plain()); err != nil {
			t.Fatal(err)
		}
	}
	if _, conns := server.said(); conns != 3+2 {
		t.Errorf("%d connections though none is kept", conns-3)
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	server := newScript(t, map[string]string{})
	config := server.config()
	config.IdleTimeout = time.Millisecond
	s := newSender(t, config)
	if err := s.Send(t.Context(), call, plain()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if verbs, _ := server.said(); strings.HasSuffix(verbs, " QUIT") {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("still open after %s", verbs)
		}
	}
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if len(s.pool.idle) > 0 || s.pool.sweep != nil {
		t.Errorf("%d are kept", len(s.pool.idle))
	}
}

func TestCloseThenSend(t *testing.T) {
	server := newScript(t, map[string]string{})
	s := newSender(t, server.config())
	for range 2 {
		if err := s.Send(t.Context(), call, plain()); err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
	if len(s.pool.idle) != 0 {
		t.Error("a connection is kept after Close")
	}
}

func TestAddressesOfOtherLanguages(t *testing.T) {
	server := newScript(t, map[string]string{"EHLO": "250-script\r\n250-8BITMIME\r\n250 SMTPUTF8"})
	m := plain()
	m.To = Addresses{"jürgen@bücher.example"}
	if err := newSender(t, server.config()).Send(t.Context(), call, m); err != nil {
		t.Error(err)
	}
	server = newScript(t, map[string]string{})
	if err := newSender(t, server.config()).Send(t.Context(), call, m); outcomes.Of(err) != "permanent" {
		t.Errorf("%s: %v", outcomes.Of(err), err)
	}
}

// certificate is one for 127.0.0.1 and the roots that know it.
func certificate(t *testing.T) (*tls.Config, *tls.Config) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return &tls.Config{Certificates: server.TLS.Certificates}, &tls.Config{RootCAs: roots}
}

func TestTLSAndAuth(t *testing.T) {
	serverTLS, clientTLS := certificate(t)
	const password = "hunter2"
	_, config := newSandbox(t, sandbox.Config{TLS: serverTLS, Username: "u", Password: password})
	_, without := newSandbox(t, sandbox.Config{})
	config.Username, config.Password, config.TLSConfig = "u", password, clientTLS
	change := func(base Config, f func(c *Config)) Config { f(&base); return base }
	for name, tt := range map[string]struct {
		config Config
		want   string
	}{
		"starttls":               {change(config, func(c *Config) { c.TLS = TLSMandatory }), "ok"},
		"offered":                {change(config, func(c *Config) { c.TLS = TLSOpportunistic }), "ok"},
		"plain on this machine":  {config, "ok"},
		"wrong password":         {change(config, func(c *Config) { c.Password = password + "!" }), "account exhausted"},
		"no password":            {change(config, func(c *Config) { c.Username = "" }), "account exhausted"},
		"unknown authority":      {change(config, func(c *Config) { c.TLS, c.TLSConfig = TLSMandatory, nil }), "retryable"},
		"not offered":            {change(without, func(c *Config) { c.TLS = TLSMandatory }), "retryable"},
		"not offered, no matter": {change(without, func(c *Config) { c.TLS = TLSOpportunistic }), "ok"},
		"no auth offered":        {change(without, func(c *Config) { c.Username = "u" }), "retryable"},
		"not tls at all":         {change(without, func(c *Config) { c.TLS, c.Timeout = TLSImplicit, 5*time.Second }), "retryable"},
	} {
		t.Run(name, func(t *testing.T) {
			err := newSender(t, tt.config).Send(t.Context(), call, plain())
			if got := outcomes.Of(err); got != tt.want {
				t.Errorf("%s; want %s: %v", got, tt.want, err)
			}
			if err != nil && strings.Contains(err.Error(), password) {
				t.Errorf("%q gives the password away", err)
			}
		})
	}
}

func TestImplicitTLS(t *testing.T) {
	serverTLS, clientTLS := certificate(t)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &script{listener: tls.NewListener(inner, serverTLS), replies: map[string]string{"EHLO": "250-script\r\n250 AUTH LOGIN PLAIN", "AUTH": "235 ok"}}
	server.serving.Go(func() {
		if conn, err := server.listener.Accept(); err == nil {
			server.serve(conn)
		}
	})
	defer server.serving.Wait()
	defer inner.Close()
	config := server.config()
	config.TLS, config.TLSConfig, config.Username, config.Password = TLSImplicit, clientTLS, "u", "p"
	s := newSender(t, config)
	defer s.Close()
	if err := s.Send(t.Context(), call, plain()); err != nil {
		t.Error(err)
	}
}

// Without TLS the password goes to no other machine, whatever that one offers.
func TestPasswordStaysHere(t *testing.T) {
	server := newScript(t, map[string]string{"EHLO": "250-script\r\n250 AUTH LOGIN PLAIN"})
	c, err := dial(t.Context(), server.config())
	if err != nil {
		t.Fatal(err)
	}
	defer c.raw.Close()
	if auth, err := c.mechanism(Config{Host: "mx.example.com", Username: "u", Password: "p"}); err == nil {
		t.Errorf("%T", auth)
	}
}

func TestThrottledBySandbox(t *testing.T) {
	provider, config := newSandbox(t, sandbox.Config{Limit: sandbox.Limit{Rate: 0.5, Burst: 1}})
	s := newSender(t, config)
	if err := s.Send(t.Context(), call, plain()); err != nil {
		t.Fatal(err)
	}
	err := s.Send(t.Context(), call, plain())
	throttled, ok := errors.AsType[*clients.ThrottledError](err)
	if !ok || throttled.RetryAfter() != 2*time.Second {
		t.Errorf("%s: %v", outcomes.Of(err), err)
	}
	calls := provider.Calls()
	if got := calls[0]; got.Tenant != call.Tenant || got.Job != call.Job || got.Attempt != "2" || got.Key != call.IdempotencyKey {
		t.Errorf("%+v", got)
	}
}

// Hundreds at once get by with as many connections, kept over rounds.
func TestManyAtOnce(t *testing.T) {
	const together, rounds = 200, 5
	provider, config := newSandbox(t, sandbox.Config{})
	s := newSender(t, config)
	var senders sync.WaitGroup
	for i := range together {
		senders.Go(func() {
			for j := range rounds {
				if err := s.Send(t.Context(), clients.Call{Job: fmt.Sprint(i, " ", j), Tenant: "acme"}, plain()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	senders.Wait()
	seen := map[string]bool{}
	for _, c := range provider.Calls() {
		seen[c.Job] = true
	}
	if got := provider.Stats()["acme"].Accepted; got != together*rounds || len(seen) != got {
		t.Errorf("%d accepted, %d different", got, len(seen))
	}
	if got := len(s.pool.idle); got > together {
		t.Errorf("%d connections for %d at once", got, together)
	}
}

func TestInvalidMessage(t *testing.T) {
	s := newSender(t, Config{Host: "127.0.0.1", Port: 1})
	if err := s.Send(t.Context(), call, Message{}); outcomes.Of(err) != "permanent" {
		t.Error(err)
	}
}

func ExampleNew() {
	provider, err := sandbox.NewSMTP()
	if err != nil {
		panic(err)
	}
	defer provider.Close()
	host, port, _ := net.SplitHostPort(provider.Addr())
	number, _ := strconv.Atoi(port)
	sender, err := New(Config{Host: host, Port: number, TLS: TLSNone})
	if err != nil {
		panic(err)
	}
	defer sender.Close()
	err = sender.Send(context.Background(), clients.Call{Job: "1", Tenant: "acme", Attempt: 1}, Message{
		From: "shop@example.com", To: Addresses{"you@example.net"}, Subject: "hi", Text: "hello",
	})
	fmt.Println(err, provider.Stats()["acme"].Accepted)
	// Output: <nil> 1
}

func BenchmarkSend(b *testing.B) {
	_, config := newSandbox(b, sandbox.Config{})
	s := newSender(b, config)
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := s.Send(b.Context(), call, plain()); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
