package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/internal/test/golden"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/lifecycle"
)

// failure is one of the ways in which a call fails, and why it holds what it holds.
type failure struct {
	what string

	// What the provider answers. One over HTTP that has no status reads the call and
	// says nothing; down is one that nobody listens for.
	status int
	header string // "Name: value", several by line
	body   string
	smtp   map[string]string // by verb; "." is the end of the message
	down   bool
	times  int // calls up to the one that is looked at; 0 means 1

	until func(now time.Time) time.Time // when the time depends on the date
	long  string                        // what it is then
	why   string
}

// provider is one that the worker calls.
type provider struct {
	name, kind, payload string
	account             string // of a tenant of its own; "": there are none
	config              func(url string) config
	failures            []failure
}

const (
	notThere  = "no connection: refused, no TLS, or the address does not resolve"
	cutOff    = "sent, and no answer"
	fiveTimes = "5 failed calls in a row"
)

func providers() []provider {
	stripe := func(kind, code string) string {
		return fmt.Sprintf(`{"error":{"type":%q,"code":%q,"message":"…"}}`, kind, code)
	}
	openAI := func(kind, code, message string) string {
		return fmt.Sprintf(`{"error":{"message":%q,"type":%q,"code":%q}}`, message, kind, code)
	}
	anthropic := func(kind, message string) string {
		return fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q}}`, kind, message)
	}
	resend := func(name string) string { return fmt.Sprintf(`{"name":%q,"message":"…"}`, name) }
	ses := func(kind string) string { return "X-Amzn-ErrorType: " + kind }
	nextMonth := func(now time.Time) time.Time {
		return time.Date(now.UTC().Year(), now.UTC().Month()+1, 1, 0, 0, 0, 0, time.UTC)
	}
	const invalid = "invalid_request_error"
	unreached := []failure{
		{what: notThere, down: true, why: "nothing was sent"},
		{what: fiveTimes, down: true, times: 5, why: "the provider is down; see [below](#providers-that-are-down)"},
	}
	return []provider{
		{
			name: "Webhooks", kind: "webhook", payload: `{"url":"URL/hook"}`,
			config: func(string) config { return config{WebhookAllowPrivate: true, WebhookRetryNotFound: time.Hour} },
			failures: append([]failure{
				{what: "429", status: 429, why: "the receiver wants fewer calls"},
				{what: "429 with Retry-After: 30", status: 429, header: "Retry-After: 30", why: "the same, with a time"},
				{what: "502, 503, 504 with Retry-After: 30", status: 503, header: "Retry-After: 30", why: "the receiver is overloaded or in maintenance"},
				{what: "408, 409, 425, other 5xx, and these without Retry-After", status: 503, why: "it may succeed later; 409: an earlier attempt is in flight"},
				{what: "404", status: 404, why: "the receiver may be in a deployment; [after an hour](#receivers-that-are-not-found) the job is archived"},
				{what: "410", status: 410, why: "the receiver wants no more calls"},
				{what: "410 to an earlier job", status: 410, times: 2, why: "[the endpoint is gone](#endpoints-that-are-gone), for 24 h; each of its jobs checks once an hour"},
				{what: "3xx, 401, 403, other 4xx", status: 403, why: "the same call would get the same answer"},
				{what: cutOff, why: "the receiver recognizes a repetition by its key"},
			}, unreached...),
		},
		{
			name: "Email over SMTP", kind: "email", payload: mail, account: "email: {username: u, password: p}",
			config: func(url string) config {
				return config{EmailProvider: "smtp", SMTPAddr: strings.TrimPrefix(url, "http://"), SMTPTLS: "none", SMTPUsername: "u", SMTPPassword: "p"}
			},
			failures: append([]failure{
				{what: "throttled at the greeting", smtp: map[string]string{"hello": "421 4.7.0 too many connections"}, why: "no sender was named yet, so it concerns all"},
				{what: "421, or 4xx that speaks of a rate and of 30 seconds", smtp: map[string]string{"MAIL": "450 4.7.0 rate limit exceeded, try again in 30 seconds"}, why: "this sender sends too much"},
				{what: "454 that speaks of a rate", smtp: map[string]string{".": "454 Throttling failure: Maximum sending rate exceeded."}, why: "Amazon SES means the account"},
				{what: "4xx 4.2.x: the mailbox is full or receives too much", smtp: map[string]string{"RCPT": "450 4.2.1 The user you are trying to contact is receiving mail at a rate that prevents additional messages"}, why: "it is about one recipient"},
				{what: "greylisted, other 4xx", smtp: map[string]string{"RCPT": "451 4.7.1 Greylisted"}, why: "the server asks this message to come again"},
				{what: "530, 534, 535, 538", smtp: map[string]string{"AUTH": "535 5.7.8 bad credentials"}, why: "[a refused key](#refused-keys)"},
				{what: "4xx at the login", smtp: map[string]string{"AUTH": "454 4.7.0 Too many login attempts"}, why: "each further login could prolong it"},
				{what: "other 5xx", smtp: map[string]string{"RCPT": "550 5.1.1 no such user"}, why: "the same message would be refused again"},
				{what: "lost before the end of the message", smtp: map[string]string{"DATA": "close"}, why: "an incomplete message is not delivered"},
				{what: cutOff, smtp: map[string]string{".": "close"}, why: "a mail server does not recognize a repetition"},
			}, unreached...),
		},
		{
			name: "Email over Amazon SES", kind: "email", payload: mail, account: "email: {access_key_id: a, secret_access_key: b}",
			config: func(url string) config {
				return config{EmailProvider: "ses", SESRegion: "eu-central-1", SESAccessKeyID: "a", SESSecretAccessKey: "b", SESEndpoint: url}
			},
			failures: append([]failure{
				{what: "TooManyRequests, Throttling, other 429", status: 429, header: ses("TooManyRequestsException"), why: "the rate is the account's"},
				{what: "the daily quota", status: 429, header: ses("TooManyRequestsException"), body: `{"message":"Daily message quota exceeded."}`, why: "the quota is of the last 24 hours"},
				{what: "SendingPaused", status: 400, header: ses("SendingPausedException"), why: "the operator must end the pause"},
				{what: "AccountSuspended", status: 400, header: ses("AccountSuspendedException"), why: "Amazon has to lift it"},
				{what: "wrong or expired credentials", status: 403, header: ses("UnrecognizedClientException"), why: "[a refused key](#refused-keys)"},
				{what: "AccessDenied, NotAuthorized", status: 403, header: ses("AccessDeniedException"), why: "the key may not send from this address"},
				{what: "LimitExceeded, 408, 500, 503", status: 500, header: ses("InternalServiceErrorException"), why: "SES asks to retry"},
				{what: "MessageRejected, other 4xx", status: 400, header: ses("MessageRejected"), why: "the same message would be refused again"},
				{what: "502, 504", status: 502, why: "a gateway in front of SES does not know the outcome"},
				{what: cutOff, why: "SES does not recognize a repetition"},
			}, unreached...),
		},
		{
			name: "Email over Resend", kind: "email", payload: mail, account: "email: {api_key: re_acme}",
			config: func(url string) config {
				return config{EmailProvider: "resend", ResendAPIKey: "re_worker", ResendURL: url}
			},
			failures: append([]failure{
				{what: "rate_limit_exceeded or other 429, with Retry-After: 2", status: 429, header: "Retry-After: 2", body: resend("rate_limit_exceeded"), why: "the rate is the team's, which all of its keys share"},
				{what: "daily_quota_exceeded, monthly_quota_exceeded", status: 429, body: resend("daily_quota_exceeded"), why: "Resend says to wait a day; a larger plan ends it at once"},
				{what: "invalid_api_key, suspended_api_key", status: 403, body: resend("invalid_api_key"), why: "[a refused key](#refused-keys)"},
				{what: "restricted_api_key", status: 401, body: resend("restricted_api_key"), why: "the key lacks the permission"},
				{what: "concurrent_idempotent_requests", status: 409, body: resend("concurrent_idempotent_requests"), why: "an earlier attempt is in flight"},
				{what: "408, 425, 5xx, an answer that is not Resend's", status: 500, body: resend("internal_server_error"), why: "the key makes a repetition safe"},
				{what: "invalid_idempotent_request, validation_error, other 4xx", status: 422, body: resend("validation_error"), why: "the same message would be refused again"},
				{what: cutOff, why: "the key makes a repetition safe, [for 23 h](#unknown-outcomes)"},
			}, unreached...),
		},
		{
			name: "OpenAI, Azure, and servers that copy them", kind: "ai", payload: aiPayload, account: "ai: {api_key: sk-acme}",
			config: func(url string) config { return config{AIProvider: "openai", AIAPIKey: "sk-worker", AIBaseURL: url} },
			failures: append([]failure{
				{what: "429 of a rate or 503 slow_down, with Retry-After: 7", status: 429, header: "Retry-After: 7", body: openAI("requests", "rate_limit_exceeded", "Rate limit reached"), why: "the rate is the account's, not the tenant's"},
				{what: "429 that names an end user, with Retry-After: 30", status: 429, header: "Retry-After: 30", body: openAI("None", "429", "Rate limit exceeded for end_user: acme"), why: "a gateway's limit for one of its users"},
				{what: "429, the request alone is over the limit", status: 429, body: openAI("tokens", "rate_limit_exceeded", "Request too large for gpt-4o"), why: "it always exceeds the limit"},
				{what: "429 of a day", status: 429, body: openAI("requests", "rate_limit_exceeded", "Rate limit reached on requests per day (RPD)"), why: "no pause for a rate lasts that long",
					until: midnightUTC, long: "until the next day (UTC)"},
				{what: "no credit, insufficient_quota, 402", status: 429, body: openAI("insufficient_quota", "insufficient_quota", "You exceeded your current quota"), why: "credit or budget is used up; the provider may name a time"},
				{what: "401", status: 401, body: openAI(invalid, "invalid_api_key", "Incorrect API key provided"), why: "[a refused key](#refused-keys)"},
				{what: "403", status: 403, body: openAI("request_forbidden", "", "no"), why: "a key may be valid for some models only"},
				{what: "408, 409, 425, 5xx; a page with 404", status: 503, body: openAI("service_unavailable_error", "server_is_overloaded", "…"), why: "it may succeed later"},
				{what: "400, 404, 413, 422, refused content", status: 400, body: openAI(invalid, "context_length_exceeded", "…"), why: "the same request would be refused again"},
				{what: cutOff, why: "a second completion costs twice, and harms nothing"},
			}, unreached...),
		},
		{
			name: "Anthropic", kind: "ai", payload: aiPayload, account: "ai: {api_key: sk-acme}",
			config: func(url string) config { return config{AIProvider: "anthropic", AIAPIKey: "sk-worker", AIBaseURL: url} },
			failures: append([]failure{
				{what: "429 rate_limit_error with Retry-After: 12", status: 429, header: "Retry-After: 12", body: anthropic("rate_limit_error", "This request would exceed your organization's rate limit"), why: "the rate is the organization's, not the tenant's"},
				{what: "enforced_spend_limit_reached", status: 429, body: `{"type":"error","error":{"type":"rate_limit_error","message":"…","details":{"error_code":"enforced_spend_limit_reached"}}}`, why: "the month's budget is spent",
					until: nextMonth, long: "until the next month (UTC)"},
				{what: "no credit, usage limits, 402", status: 400, body: anthropic(invalid, "Your credit balance is too low to access the Anthropic API"), why: "credit or budget is used up; Anthropic may name a time"},
				{what: "401", status: 401, body: anthropic("authentication_error", "invalid x-api-key"), why: "[a refused key](#refused-keys)"},
				{what: "403", status: 403, body: anthropic("permission_error", "no"), why: "a key may be valid for some models only"},
				{what: "529 overloaded_error, 408, 409, other 5xx", status: 529, body: anthropic("overloaded_error", "Overloaded"), why: "it may succeed later"},
				{what: "400, 404, 413, refused content", status: 400, body: anthropic(invalid, "prompt is too long"), why: "the same request would be refused again"},
				{what: cutOff, why: "a second completion costs twice, and harms nothing"},
			}, unreached...),
		},
		{
			name: "Stripe", kind: "payment", payload: paymentPayload, account: "payment: {key: sk_acme}",
			config: func(url string) config { return config{StripeKey: "sk_worker", StripeURL: url} },
			failures: append([]failure{
				{what: "429 of a rate", status: 429, body: stripe(invalid, "rate_limit"), why: "the rate is the account's"},
				{what: "429 lock_timeout, 429 resource-specific", status: 429, body: stripe(invalid, "lock_timeout"), why: "another request holds the same object"},
				{what: "409 idempotency_key_in_use", status: 409, body: stripe("idempotency_error", "idempotency_key_in_use"), why: "an earlier attempt is in flight"},
				{what: "401", status: 401, body: stripe(invalid, ""), why: "[a refused key](#refused-keys)"},
				{what: "403", status: 403, body: stripe(invalid, ""), why: "a restricted key may allow charges but not refunds"},
				{what: "402, other 4xx", status: 402, body: stripe("card_error", "card_declined"), why: "Stripe repeats a decline for the same key"},
				{what: "5xx", status: 500, body: stripe("api_error", ""), why: "the key makes a repetition safe, [for 23 h](#unknown-outcomes)"},
				{what: "5xx that Stripe calls final", status: 500, header: "Stripe-Should-Retry: false", body: stripe("api_error", ""), why: "this key gives no other answer, and another could be a second charge"},
				{what: cutOff, why: "the key makes a repetition safe, [for 23 h](#unknown-outcomes)"},
			}, unreached...),
		},
	}
}

func midnightUTC(now time.Time) time.Time {
	return now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
}

// TestFailures makes each of the providers fail in each of the ways, under the
// worker's own handlers, and holds the tables of docs/clients.md against what that
// held back; with -update it writes them.
func TestFailures(t *testing.T) {
	var tables strings.Builder
	for _, p := range providers() {
		fmt.Fprintf(&tables, "\n### %s\n\n| Failure | Holds | For | The job is | Because |\n|---|---|---|---|---|\n", p.name)
		for _, f := range p.failures {
			holds, long, outcome := p.fail(t, f)
			fmt.Fprintf(&tables, "| %s | %s | %s | %s | %s |\n", f.what, holds, long, outcome, f.why)
		}
	}
	tables.WriteString("\n")
	golden.Part(t, "../../docs/clients.md", "failures", tables.String())
}

// fail makes a call fail for a tenant with the worker's account, and for one with an
// account of its own.
func (p provider) fail(t *testing.T, f failure) (holds, long string, outcome lifecycle.Outcome) {
	t.Helper()
	for range 20 {
		common := p.call(t, f, "initech", "globex")
		own := common
		if p.account != "" {
			own = p.call(t, f, "acme", "acme")
		}
		switch {
		case common.took > 300*time.Millisecond: // what is left of a time would be rounded otherwise
			continue
		case own.who != common.who:
			return fmt.Sprintf("%s, or the %s with its own account", common.who, own.who), common.long, common.outcome
		}
		return common.who, common.long, common.outcome
	}
	t.Fatalf("%s: %s: the machine is too slow to tell times", p.name, f.what)
	return "", "", ""
}

type held struct {
	who, long string
	outcome   lifecycle.Outcome
	took      time.Duration
}

func (p provider) call(t *testing.T, f failure, tenant, other string) held {
	t.Helper()
	url := f.serve(t)
	c := p.config(url)
	c.BreakerPause = 30 * time.Second
	if f.down {
		c.BreakerFailures, other = f.times, tenant
	}
	file := ""
	if p.account != "" {
		file = "tenants: {acme: {" + p.account + "}}"
	}
	call, _ := calling(t, c, file)
	payload := strings.ReplaceAll(p.payload, "URL", url)
	began := time.Now()
	for i := range f.times - 1 {
		call(p.kind, []string{tenant, other}[i%2], payload)
	}
	now := time.Now()
	outcome, err := call(p.kind, tenant, payload)
	if err == nil {
		t.Fatalf("%s: %s: the call succeeded", p.name, f.what)
	}
	took := time.Since(began)
	who, length, long := holdOf(err, outcome, now)
	if f.until != nil {
		until := now.Add(length)
		if until.Sub(f.until(now)).Abs() > time.Second && until.Sub(f.until(time.Now())).Abs() > time.Second {
			t.Errorf("%s: %s: held for %v, not %s: %v", p.name, f.what, length, f.long, err)
		}
		long = f.long
	}
	return held{who, long, outcome, took}
}

// holdOf returns who waits because of an error, for how long, and that in words. length is 0
// if no time was named.
func holdOf(err error, outcome lifecycle.Outcome, now time.Time) (who string, length time.Duration, long string) {
	if e, ok := errors.AsType[interface {
		error
		Holds() (who string, length time.Duration, named bool)
	}](err); ok {
		if who, length, named := e.Holds(); who != "" {
			return who, length, inWords(length, named)
		}
	}
	if throttled, ok := errors.AsType[*clients.ThrottledError](err); ok {
		who = clients.OfTenant
		if throttled.Account {
			who = clients.OfAccount
		}
		return who, throttled.After, inWords(throttled.After, true)
	}
	if postponed, ok := errors.AsType[*clients.PostponedError](err); ok {
		length = postponed.Until.Sub(now)
		return "job", length, inWords(length, !postponed.KeepFirst)
	}
	if outcome == lifecycle.Retried {
		return "job", 0, "1 s, doubling up to 10 min"
	}
	return "job", 0, "for good"
}

// inWords formats the length of a hold in the largest unit of which it is a multiple.
func inWords(length time.Duration, named bool) string {
	if length == 0 {
		return "1 s by default"
	}
	length = length.Round(time.Second)
	text := fmt.Sprintf("%d s", length/time.Second)
	switch {
	case length%time.Hour == 0:
		text = fmt.Sprintf("%d h", length/time.Hour)
	case length%time.Minute == 0:
		text = fmt.Sprintf("%d min", length/time.Minute)
	}
	if !named {
		text += ", and longer each time"
	}
	return text
}

// serve plays the provider until the test ends, and returns where it is.
func (f failure) serve(t *testing.T) string {
	t.Helper()
	if f.down {
		return "http://" + redistest.FreeAddr(t)
	}
	if f.smtp != nil {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		go f.mails(listener)
		return "http://" + listener.Addr().String()
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if f.status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		for line := range strings.Lines(f.header) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(f.status)
		io.WriteString(w, f.body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// mails is a mail server that says what the failure has it say.
func (f failure) mails(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			say := func(verb, otherwise string) bool {
				text := cmp.Or(f.smtp[verb], otherwise)
				if text != "close" {
					fmt.Fprint(conn, text+"\r\n")
				}
				return text != "close"
			}
			if !say("hello", "220 ready") {
				return
			}
			lines := bufio.NewScanner(conn)
			for within := false; lines.Scan(); {
				verb, _, _ := strings.Cut(lines.Text(), " ")
				answer := "250 ok"
				switch {
				case within && verb != ".":
					continue
				case verb == ".":
					within = false
				case verb == "EHLO":
					answer = "250-mx\r\n250 AUTH PLAIN"
				case verb == "AUTH":
					answer = "235 ok"
				case verb == "DATA":
					within, answer = f.smtp["DATA"] == "", "354 go on"
				}
				if !say(verb, answer) {
					return
				}
			}
		}()
	}
}
