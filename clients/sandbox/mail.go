package sandbox

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// mailAPI is what the providers that take mail over HTTP have in common. All that
// comes to them is counted in recipients.
type mailAPI struct {
	*HTTP

	mail    sync.Mutex
	as      apiError // what struck calls of its status are answered with
	dropped int
	taken   int
}

// apiError is a provider's refusal.
type apiError struct {
	status        int
	code, message string
}

// failAs makes the next n calls within their limits fail with a refusal.
func (a *mailAPI) failAs(n int, refusal apiError) {
	a.mail.Lock()
	a.as = refusal
	a.mail.Unlock()
	a.Fail(n, refusal.status)
}

// DropAnswers closes the connections of the next n mails that are taken, instead
// of answering: the caller cannot know, and the mail is on its way. See
// [Provider.Drop] for mails that are not taken.
func (a *mailAPI) DropAnswers(n int) {
	a.mail.Lock()
	defer a.mail.Unlock()
	a.dropped = max(n, 0)
}

// Taken is how many mails the provider took: each is one in somebody's inbox.
func (a *mailAPI) Taken() int {
	a.mail.Lock()
	defer a.mail.Unlock()
	return a.taken
}

// mailVisit is what became of one mail.
type mailVisit struct {
	visit
	over    *quota // the quota that it was over; nil: none
	dropped bool
	as      apiError
}

// admit decides about a mail to n recipients, with the lock held. As SES does, it
// takes a mail for which there is any room, and the others wait the longer.
func (a *mailAPI) admit(at time.Time, c Call, n int, codes protocol, quotas ...*quota) mailVisit {
	at = a.now(at)
	for _, q := range quotas {
		if q.full(at) {
			a.note(at, c, codes.throttled, true)
			return mailVisit{visit: visit{rejected: true, latency: a.delay()}, over: q}
		}
	}
	v := mailVisit{visit: a.arrive(at, c, codes), as: a.as}
	if v.rejected {
		return v
	}
	a.charge(at, c.Tenant, n-1)
	if v.struck {
		return v
	}
	for _, q := range quotas {
		q.use(at, n)
	}
	a.taken++
	if a.dropped > 0 {
		a.dropped--
		v.dropped = true
	}
	return v
}

// fault is the refusal of a struck call.
func (v mailVisit) fault(otherwise apiError) apiError {
	if v.as.status == v.status {
		return v.as
	}
	otherwise.status = v.status
	if otherwise.status < 400 || otherwise.status > 599 {
		otherwise.status = http.StatusInternalServerError
	}
	return otherwise
}

// now is the provider's time of something that happened at t.
func (p *Provider) now(t time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clock(t)
}

func (p *Provider) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults.latency
}

// charge adds n units to what a call at t used.
func (p *Provider) charge(t time.Time, tenant string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range n {
		p.tenant(tenant).meter.add(t)
		p.account.add(t)
	}
}

// note writes down a call that no limit was asked about. A violation is counted.
func (p *Provider) note(at time.Time, c Call, status int, violation bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if violation {
		p.tenant(c.Tenant).stats.Rejected++
	}
	c.At, c.Status = at, status
	p.log.add(c)
}

// quota counts what was sent within a time that ends now.
type quota struct {
	most int // 0: any number
	span time.Duration
	uses []use
	sum  int
}

type use struct {
	at time.Time
	n  int
}

func (q *quota) full(now time.Time) bool { return q.most > 0 && q.used(now) >= q.most }

func (q *quota) used(now time.Time) int {
	old := 0
	for old < len(q.uses) && now.Sub(q.uses[old].at) >= q.span {
		q.sum -= q.uses[old].n
		old++
	}
	q.uses = q.uses[old:]
	return q.sum
}

// use adds n. Uses within a second of another are counted as one with it, which
// keeps them for up to that much too long, and bounds how many there are.
func (q *quota) use(now time.Time, n int) {
	q.sum += n
	if last := len(q.uses) - 1; last >= 0 && now.Sub(q.uses[last].at) < time.Second {
		q.uses[last].n += n
		return
	}
	q.uses = append(q.uses, use{now, n})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}

// newID is 16 random bytes as a UUID is written.
func newID() string {
	var b [16]byte
	rand.Read(b[:])
	text := hex.EncodeToString(b[:])
	return text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
}
