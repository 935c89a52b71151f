package queue

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/httpcall"
	"github.com/headgate/headgate/queue/internal/store"
)

// Transport is an [http.RoundTripper] whose calls share the limits of a queue with its jobs: each
// takes a [Permit] before it is sent. It never repeats a call. It is safe for concurrent use.
type Transport struct {
	Client *Client // required

	// Job says for a request which limits apply: see [Client.Take]. Required. Its error ends the
	// call. The request's body must not be read.
	Job func(*http.Request) (Job, error)

	// Quotas returns what an answer says of the provider's limits, which adaptive limits follow: see [SetQuota]. What
	// is invalid is left out. nil: nothing is read. The body of the answer must not be read.
	Quotas func(*http.Response) []Quota

	// Base makes the calls; nil means [http.DefaultTransport].
	Base http.RoundTripper

	// MaxWait is how long a call may wait until its limits admit it; 0: it is refused if they do not
	// admit it at once. If Redis does not answer, the call fails 5 s later at the latest.
	MaxWait time.Duration
}

// RoundTrip waits until the call may be made, and makes it with Base. If the answer asks for fewer calls, as
// with status 429, the jobs and calls of the tenant pause for as long as the answer says, at most
// a day. The places that the call takes of concurrency limits are free when the body of the answer is
// read to its end or closed.
//
// In addition to errors of Base it returns those of Job and of [Client.Wait], such as a
// [RefusedError]: then nothing was sent. If Redis does not answer, no call is made.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := cmp.Or(t.Base, http.DefaultTransport)
	ctx := r.Context()
	job, err := t.Job(r)
	var p *Permit
	if err == nil {
		p, err = t.Client.Wait(ctx, job, t.MaxWait)
	}
	if err != nil {
		httpcall.CloseBody(r)
		return nil, err
	}
	later := context.WithoutCancel(ctx)
	resp, sent, err := httpcall.Send(base, r)
	if err != nil {
		end := p.Release
		if !sent {
			end = p.Cancel
		}
		_ = end(later) // else it is used up
		return nil, err
	}
	length, reason := httpcall.PauseFor(resp)
	if quotas := t.quotas(resp); length > 0 {
		_ = p.SetQuota(later, quotas...)         // else the limit, which is known, would be searched for
		_ = p.pauseTenant(later, length, reason) // the next answer asks for it again
	} else if len(quotas) > 0 {
		go func() { _ = p.SetQuota(later, quotas...) }() // the answer is here, and does not wait for Redis
	}
	httpcall.WhenRead(resp, func() { _ = p.Release(later) }) // else its place lapses
	return resp, nil
}

// quotas returns what an answer says of the provider's limits, without what makes no sense.
func (t *Transport) quotas(resp *http.Response) []Quota {
	if t.Quotas == nil {
		return nil
	}
	return slices.DeleteFunc(t.Quotas(resp), func(q Quota) bool { return q.check() != nil })
}

// pauseTenant pauses the tenant of a call, as [PauseTenant] does in a handler.
func (p *Permit) pauseTenant(ctx context.Context, length time.Duration, reason string) error {
	_, err := p.end(ctx, "pause", fmt.Sprintf("%d %s", length.Microseconds(), check.Printable(reason, maxWords)))
	if err == nil {
		of, _ := p.place()
		store.AnnounceToAll(ctx, p.client.redis, of.home)
	}
	return err
}
