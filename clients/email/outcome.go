package email

import (
	"errors"
	"fmt"
	"net/textproto"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/clients"
	shared "github.com/headgate/headgate/clients/internal/transport"
)

// outcome returns what a failed message means:
//
//	no connection, no TLS                            unreachable
//	refused at the greeting, other 421               unavailable
//	4xx and 5xx at the login, 530, 534, 535, 538     the key is refused
//	throttled at the greeting, or by 454             throttled, the whole account
//	421                                              throttled, unless 4.3.x or 4.4.x
//	450, 451, 452 with 4.7.x                         throttled, unless greylisted
//	other 4xx that mentions a rate                   throttled
//	other 4xx                                        retryable
//	5xx that mentions a sending limit, 5.4.5         throttled
//	any of these that mentions a day                 exhausted, the whole account if it
//	                                                 would be throttled
//	other 5xx                                        permanent
//	lost before the message was complete             unreachable
//	lost after                                       unknown
//	an address that the server does not support      permanent
//
// The operator must fix credentials and refusals at the greeting. They do not concern the
// message, which must not be archived for them. Credentials hold the account, see
// [clients.KeyRefused]. So does a 4xx at the login, such as "too many login attempts": each job that
// logs in again could prolong it.
//
// Greylisting asks to send this message again, not to send fewer, and x.2.x concerns one
// mailbox, even if that receives too much. After 4.5.3 (too many recipients) a pause would not
// help either, and would never end, because pauses spend no attempts. Before the sender is sent,
// a refusal can only concern the account, and with 454 Amazon SES means the account.
//
// Secrets are removed from the server's text.
func outcome(host string, err error, secrets ...string) error {
	at := stepOf(err)
	answer, spoke := errors.AsType[*textproto.Error](err)
	if !spoke {
		// Use only the text: an error that matches a context's would be treated as a call that was
		// never made.
		reason := clients.Printable(without(cause(err).Error(), secrets...), maxReason)
		text := fmt.Errorf("%s: %s: %s", host, at, reason)
		switch {
		case at == stepAnswer:
			return clients.Unknown(fmt.Errorf("%s: no answer after the message was sent: %s", host, reason))
		case errors.Is(err, errNoUTF8):
			return clients.Permanent(text)
		case shared.Short(err):
			return clients.PostponeUntil(time.Now().Add(shared.ShortPause), clients.NotCalled(text))
		}
		return clients.Unreachable(text)
	}
	r := reply{answer.Code, enhanced(answer.Msg), strings.ToLower(answer.Msg)}
	if at == stepAuth {
		// The server's text may repeat the credentials.
		reason := fmt.Errorf("%s: %s: %s", host, at, strings.TrimSpace(fmt.Sprint(r.code, " ", r.enhanced)))
		if r.code/100 == 4 || r.code/100 == 5 {
			return clients.KeyRefused(r.after(), reason)
		}
		return clients.Retryable(reason)
	}
	reason := fmt.Errorf("%s: %s: %d %s", host, at, r.code, clients.Printable(without(answer.Msg, secrets...), maxReason))
	all := at == stepConnect || r.code == 454
	switch {
	case r.throttled() && r.after() == 0 && daily.MatchString(r.text):
		if all {
			return clients.AccountExhausted(0, reason)
		}
		return clients.Exhausted(0, reason)
	case r.throttled() && all:
		return clients.AccountThrottled(r.after(), reason)
	case r.throttled():
		return clients.Throttled(r.after(), reason)
	case r.operators():
		return clients.KeyRefused(0, reason)
	case at == stepConnect, r.code == 421:
		return clients.Unavailable(reason)
	case r.code/100 == 4:
		return clients.Retryable(reason)
	}
	return clients.Permanent(reason)
}

// maxReason is the max number of bytes of a server's text in an error.
const maxReason = 200

// cause returns the error without its step.
func cause(err error) error {
	if e, ok := errors.AsType[*stepError](err); ok {
		return e.err
	}
	return err
}

// reply is a server's reply.
type reply struct {
	code     int
	enhanced string // such as 4.7.0; "": none
	text     string // in lower case
}

var (
	enhancedCode = regexp.MustCompile(`^[245]\.\d{1,3}\.\d{1,3}\b`)
	rateWords    = regexp.MustCompile(`\brate\b|rate-?limit|throttl|too (fast|quickly|frequent|often)|too many (messages|mails|emails|connections|requests|concurrent)|slow down|(limit|quota) (was |has been |is )?(exceeded|reached)|exceeded (the|your)[a-z ]* (limit|quota)`)
	sendingLimit = regexp.MustCompile(`\b(daily|hourly|sending|rate)\b[a-z ]*\b(limit|quota)\b`)
	daily        = regexp.MustCompile(`\b(daily|per day|24 hours)\b`)
	notOfRate    = regexp.MustCompile(`gr[ae]y-?list|mailbox|size|storage|recipients`)
	wait         = regexp.MustCompile(`\b(?:in|after|for) (\d{1,5}) ?(s|m|h)(?:ec|econd|in|inute|our|r)?s?\b`)
	farewell     = regexp.MustCompile(`idle|time(d)?[ -]?out|inactiv|closing|no longer|goodbye|\bbye\b`)
)

func enhanced(text string) string { return enhancedCode.FindString(text) }

func (r reply) class(prefix string) bool { return strings.HasPrefix(r.enhanced, prefix) }

// throttled reports whether the server wants fewer messages.
func (r reply) throttled() bool {
	if r.code != 421 && (r.class("4.2.") || r.class("5.2.")) {
		return false // about the recipient's mailbox (RFC 3463, 3.3)
	}
	if r.code/100 == 5 {
		return r.enhanced == "5.4.5" || sendingLimit.MatchString(r.text) && !notOfRate.MatchString(r.text)
	}
	if r.code/100 != 4 || r.enhanced == "4.5.3" {
		return false
	}
	if rateWords.MatchString(r.text) && !notOfRate.MatchString(r.text) {
		return true
	}
	switch r.code {
	case 421:
		return !r.class("4.3.") && !r.class("4.4.")
	case 450, 451, 452:
		return r.class("4.7.") && !notOfRate.MatchString(r.text)
	}
	return false
}

// after returns how long the server wants fewer messages; 0 if it does not say.
func (r reply) after() time.Duration {
	if m := wait.FindStringSubmatch(r.text); m != nil {
		n, _ := strconv.Atoi(m[1])
		unit := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[m[2]]
		return min(time.Duration(n)*unit, clients.MaxRetryAfter)
	}
	return 0
}

// operators reports whether the reply concerns the account's credentials, not the message.
func (r reply) operators() bool {
	switch r.code {
	case 530, 534, 535, 538:
		return true
	}
	return false
}

// goodbye reports whether a 421 with this text ends a connection that was idle for too long, as
// opposed to asking for fewer messages.
func goodbye(text string) bool {
	r := reply{421, enhanced(text), strings.ToLower(text)}
	return r.class("4.4.") || r.enhanced == "" && farewell.MatchString(r.text) && !rateWords.MatchString(r.text)
}
