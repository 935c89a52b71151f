package sandbox

import (
	"net/http"
	"sync"
	"time"
)

// mailAPI is the common part of the providers of mail over HTTP. They count recipients.
type mailAPI struct {
	*HTTP

	mail    sync.Mutex
	as      apiError // the answer of calls that fail on demand with its status
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

// DropAnswers closes the connections of the next n accepted mails instead of answering: the mail
// is sent, but the caller cannot know. See [Provider.Drop] for mails that are not accepted.
func (a *mailAPI) DropAnswers(n int) {
	a.mail.Lock()
	defer a.mail.Unlock()
	a.dropped = max(n, 0)
}

// Taken returns how many mails the provider accepted; each is delivered once.
func (a *mailAPI) Taken() int {
	a.mail.Lock()
	defer a.mail.Unlock()
	return a.taken
}

// mailVisit is the decision about one mail.
type mailVisit struct {
	visit
	over    *quota // the quota that it exceeded; nil: none
	dropped bool
	as      apiError
}

// admit decides about a mail to n recipients, with the lock held. Like SES, it accepts a mail if
// there is any room at all; later mails then wait longer.
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

// fault returns the refusal of a call that fails on demand.
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

// now returns the provider's time at t.
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

// charge charges n more units to a call at t.
func (p *Provider) charge(t time.Time, tenant string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range n {
		p.tenant(tenant).meter.add(t)
		p.account.add(t)
	}
}

// note logs a call that was not checked against the limits. It counts violations.
func (p *Provider) note(at time.Time, c Call, status int, violation bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if violation {
		p.tenant(c.Tenant).stats.Rejected++
	}
	c.At, c.Status = at, status
	p.log.add(c)
}

// quota counts the recipients within the latest period.
type quota struct {
	most int // 0: no limit
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

// use adds n. It merges uses within a second, which bounds their number and keeps some of them up
// to a second too long.
func (q *quota) use(now time.Time, n int) {
	q.sum += n
	if last := len(q.uses) - 1; last >= 0 && now.Sub(q.uses[last].at) < time.Second {
		q.uses[last].n += n
		return
	}
	q.uses = append(q.uses, use{now, n})
}
