package email

import (
	"errors"
	"io"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/internal/test/outcomes"
)

// Replies as servers give them.
func TestReplies(t *testing.T) {
	tests := []struct {
		at    step
		code  int
		text  string
		want  string
		after time.Duration
	}{
		{stepMail, 421, "too busy", "throttled", 0},
		{stepMail, 421, "4.7.0 Try again later, closing connection.", "throttled", 0},
		{stepMail, 421, "4.7.28 Our system has detected an unusual rate of unsolicited mail", "throttled", 0},
		{stepMail, 421, "4.3.2 Service shutting down", "retryable", 0},
		{stepMail, 421, "4.4.2 Connection timed out", "retryable", 0},
		{stepMail, 421, "4.3.2 rate limit, try again in 5 minutes", "throttled", 5 * time.Minute},
		{stepConnect, 421, "4.7.0 too many connections from your IP", "account throttled", 0},
		{stepRcpt, 450, "4.2.1 The user you are trying to contact is receiving mail at a rate that\n4.2.1 prevents additional messages", "retryable", 0},
		{stepRcpt, 452, "4.2.1 this user receives too many messages, slow down", "retryable", 0},
		{stepMail, 421, "4.2.1 too many messages, closing", "throttled", 0},
		{stepRcpt, 550, "5.2.1 The user you are trying to contact is over a daily receiving limit", "permanent", 0},
		{stepRcpt, 450, "4.7.1 Error: too much mail", "throttled", 0},
		{stepAnswer, 450, "4.7.0 rate limit exceeded, try again in 2 seconds", "throttled", 2 * time.Second},
		{stepRcpt, 450, "4.7.1 Greylisted, see http://example.org", "retryable", 0},
		{stepRcpt, 451, "4.7.1 Greylisting in action, please come back in 300 seconds", "retryable", 0},
		{stepRcpt, 450, "4.2.0 mailbox busy", "retryable", 0},
		{stepRcpt, 450, "mailbox unavailable", "retryable", 0},
		{stepAnswer, 451, "4.3.0 local error in processing", "retryable", 0},
		{stepRcpt, 452, "4.5.3 Too many recipients", "retryable", 0},
		{stepRcpt, 452, "too many recipients", "retryable", 0},
		{stepRcpt, 452, "4.2.2 The email account is over quota, mailbox limit exceeded", "retryable", 0},
		{stepMail, 452, "4.3.1 insufficient system storage", "retryable", 0},
		{stepMail, 452, "4.7.0 slow", "throttled", 0},
		{stepAnswer, 454, "Throttling failure: Maximum sending rate exceeded.", "account throttled", 0},
		{stepAnswer, 454, "Throttling failure: Daily message quota exceeded.", "account exhausted", 0},
		{stepMail, 454, "4.7.0 Temporary authentication failure", "retryable", 0},
		{stepMail, 450, "too many messages, wait for 1 hour", "throttled", time.Hour},
		{stepMail, 450, "too many messages, wait for 99999 hours", "throttled", 24 * time.Hour},
		{stepRcpt, 499, "?", "retryable", 0},
		{stepRcpt, 550, "5.1.1 no such user", "permanent", 0},
		{stepAnswer, 554, "5.7.1 looks like spam", "permanent", 0},
		{stepMail, 552, "5.3.4 message size exceeds fixed limit", "permanent", 0},
		{stepRcpt, 552, "5.2.2 mailbox full, quota exceeded", "permanent", 0},
		{stepMail, 550, "5.4.5 Daily user sending limit exceeded", "exhausted", 0},
		{stepMail, 550, "5.4.5 You have sent too much", "throttled", 0},
		{stepMail, 550, "hourly message limit reached", "throttled", 0},
		{stepMail, 550, "5.2.3 sending size limit", "permanent", 0},
		{stepMail, 530, "5.7.0 Must issue a STARTTLS command first", "account exhausted", clients.KeyPause},
		{stepMail, 535, "5.7.8 bad credentials", "account exhausted", clients.KeyPause},
		{stepConnect, 554, "5.7.1 your address is on a list", "retryable", 0},
		{stepAuth, 535, "5.7.8 hunter2 is not the password", "account exhausted", clients.KeyPause},
		{stepAuth, 421, "4.7.0 too many bad logins with hunter2", "account exhausted", clients.KeyPause},
		{stepAuth, 454, "4.7.0 Too many login attempts, please try again later", "account exhausted", clients.KeyPause},
		{stepAuth, 421, "4.7.0 Too many login attempts, try again in 10 minutes", "account exhausted", 10 * time.Minute},
		{stepAuth, 454, "4.7.0 Temporary authentication failure", "account exhausted", clients.KeyPause},
	}
	for _, tt := range tests {
		err := outcome("mx.example", &stepError{tt.at, &textproto.Error{Code: tt.code, Msg: tt.text}})
		if got := outcomes.Of(err); got != tt.want {
			t.Errorf("%s, %d %s: %s; want %s", tt.at, tt.code, tt.text, got, tt.want)
		}
		if throttled, ok := errors.AsType[*clients.ThrottledError](err); ok && throttled.RetryAfter() != tt.after {
			t.Errorf("%d %s: after %v; want %v", tt.code, tt.text, throttled.RetryAfter(), tt.after)
		}
		if exhausted, ok := errors.AsType[*clients.ExhaustedError](err); ok && exhausted.After != tt.after {
			t.Errorf("%d %s: for %v; want %v", tt.code, tt.text, exhausted.After, tt.after)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q gives the password away", err)
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q has several lines", err)
		}
	}
	err := outcome("mx.example", &stepError{stepRcpt, &textproto.Error{Code: 550, Msg: "5.1.1 no\r\n\x1b[2Jsuch user " + strings.Repeat("x", 1000)}})
	if want := "mx.example: rcpt to: 550 5.1.1 no [2Jsuch user xxx"; !strings.HasPrefix(err.Error(), want) || len(err.Error()) > 300 {
		t.Errorf("%q; want %q…", err, want)
	}
}

func TestLost(t *testing.T) {
	for at, want := range map[step]string{
		stepConnect: "retryable", stepAuth: "retryable", stepMail: "retryable", stepRcpt: "retryable",
		stepData: "retryable", stepAnswer: "unknown",
	} {
		if got := outcomes.Of(outcome("mx.example", &stepError{at, io.EOF})); got != want {
			t.Errorf("%s: %s; want %s", at, got, want)
		}
	}
	if got := outcomes.Of(outcome("mx.example", &stepError{stepMail, errNoUTF8})); got != "permanent" {
		t.Error(got)
	}
}

func FuzzReply(f *testing.F) {
	f.Add(450, "4.7.0 rate limit exceeded, try again in 2 seconds")
	f.Add(550, "5.4.5 daily sending quota")
	f.Fuzz(func(t *testing.T, code int, text string) {
		err := outcome("mx.example", &stepError{stepRcpt, &textproto.Error{Code: code, Msg: text}})
		if strings.ContainsAny(err.Error(), "\r\n\x00\x1b") || len(err.Error()) > 300 {
			t.Fatalf("%q", err)
		}
		if throttled, ok := errors.AsType[*clients.ThrottledError](err); ok && throttled.RetryAfter() > clients.MaxRetryAfter {
			t.Fatalf("%q: %v", text, throttled.RetryAfter())
		}
	})
}

// TestAtFault: which failures say that the server is down, and not that it would not take
// this message.
func TestAtFault(t *testing.T) {
	for _, tt := range []struct {
		at   step
		code int // 0: no answer
		text string
		down bool
	}{
		{stepRcpt, 450, "4.2.0 Greylisted, try again", false},
		{stepRcpt, 451, "4.7.1 Greylisting in action", false},
		{stepRcpt, 452, "4.2.2 mailbox full", false},
		{stepMail, 451, "4.3.0 local error", false},
		{stepConnect, 554, "no SMTP service here", true},
		{stepMail, 421, "4.3.2 Service shutting down", true},
		{stepConnect, 0, "connection refused", true},
		{stepData, 0, "EOF", true},
	} {
		err := error(&stepError{tt.at, errors.New(tt.text)})
		if tt.code > 0 {
			err = &stepError{tt.at, &textproto.Error{Code: tt.code, Msg: tt.text}}
		}
		_, down := errors.AsType[*clients.UnavailableError](outcome("mx.example", err))
		if down != tt.down {
			t.Errorf("%s, %d %s: down %v", tt.at, tt.code, tt.text, down)
		}
	}
}
