package queue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/internal/store"
)

// Quota is what a provider says of a limit of its own: see [SetQuota].
type Quota struct {
	Unit      string        // of the permits, as in the limits file; "": one for each call
	Limit     int64         // permits in each Window; 0: not said
	Window    time.Duration // 0: not said, so that Limit says nothing
	Remaining *int64        // permits that were left; nil: not said

	// Of says whose limit it is, and so which limits follow it.
	Of QuotaScope
}

// QuotaScope is whose limit a [Quota] is.
type QuotaScope string

const (
	QuotaOfAccount  QuotaScope = ""         // of the account of all tenants: limits of the whole queue follow it
	QuotaOfTenant   QuotaScope = "tenant"   // of the tenant's own account: limits per tenant follow it
	QuotaOfEndpoint QuotaScope = "endpoint" // of the receiver of the tenant's job: limits per endpoint follow it
)

const (
	maxQuotas      = 16
	maxQuotaWindow = 31 * 24 * time.Hour

	// freshQuota is how old what remains may be: the provider counted it when the call arrived.
	freshQuota = time.Second
)

// SetQuota passes on what the answer to the call says of the provider's limits. The adaptive limits with the same unit,
// of the whole queue, per tenant or per endpoint, follow it at once: they admit no more than Limit in each Window, until
// the provider says something else or has said nothing for ten minutes, and no more than Remaining, if the call took
// less than a second and the limit is whole again within Window, or within a minute if that is longer: what remains for
// a minute says nothing of a day. Limits by the calendar follow only Remaining. They never admit more than the limits file says.
//
// It returns an error, and sets nothing, if a quota is invalid or ctx is not the context of a call in flight. Of two
// quotas for a unit and a scope, the last one counts.
func SetQuota(ctx context.Context, quotas ...Quota) error {
	return inCall(ctx, "SetQuota", func(c *call) error {
		all, err := latestQuotas(c.quotas, quotas)
		if err != nil {
			return err
		}
		c.quotas = all
		return nil
	})
}

// latestQuotas returns the last one for each unit and scope, or an error if one is invalid, or if there are too many.
func latestQuotas(known, quotas []Quota) ([]Quota, error) {
	all := slices.Clone(known)
	for _, q := range quotas {
		if err := q.check(); err != nil {
			return nil, err
		}
		all = append(slices.DeleteFunc(all, func(other Quota) bool { return other.Unit == q.Unit && other.Of == q.Of }), q)
	}
	if len(all) > maxQuotas {
		return nil, fmt.Errorf("queue: SetQuota: %d quotas are more than %d", len(all), maxQuotas)
	}
	return all, nil
}

func (q Quota) check() error {
	switch {
	case q.Unit != "" && !check.AttributePattern.MatchString(q.Unit):
		return fmt.Errorf("queue: SetQuota: the unit %s is not 1 to 64 of a-z, 0-9 and '_'", check.Quote(q.Unit))
	case q.Limit < 0 || q.Limit > store.MaxCost:
		return fmt.Errorf("queue: SetQuota: a limit of %d must be 0 to %d", q.Limit, int64(store.MaxCost))
	case q.Window < 0 || q.Window > maxQuotaWindow || q.Window > 0 && q.Window < time.Microsecond:
		return fmt.Errorf("queue: SetQuota: a window of %v must be 1µs to %v, or 0 if it is not known", q.Window, maxQuotaWindow)
	case q.Of != QuotaOfAccount && q.Of != QuotaOfTenant && q.Of != QuotaOfEndpoint:
		return fmt.Errorf("queue: SetQuota: a quota of %s must be of the account, the tenant or the endpoint", check.Quote(string(q.Of)))
	case q.Remaining != nil && (*q.Remaining < 0 || *q.Remaining > store.MaxCost):
		return fmt.Errorf("queue: SetQuota: %d that remain must be 0 to %d", *q.Remaining, int64(store.MaxCost))
	}
	return nil
}

// told encodes for settle.lua what the provider said of its limits in an answer that took so long, if limits adapt, and
// whether the receiver rejected what was sent, if limits grow.
func (c *call) told(took time.Duration, adapts, grows bool) string {
	var text strings.Builder
	if adapts {
		encodeQuotas(&text, c.quotas, took)
	}
	if grows && c.rejected {
		text.WriteString("!1;")
	} else if grows {
		text.WriteString("!0;")
	}
	return text.String()
}

// encodeQuotas writes quotas for the script function hear. took is how long the answer took that said them.
func encodeQuotas(text *strings.Builder, quotas []Quota, took time.Duration) {
	for _, q := range quotas {
		left := int64(-1)
		if q.Remaining != nil && took < freshQuota {
			left = *q.Remaining
		}
		fmt.Fprintf(text, "%s %d %d %d %s;", q.Unit, q.Limit, q.Window.Microseconds(), left, cmp.Or(string(q.Of), ofAccount))
	}
}

// SetRejected reports that the receiver rejected what the call sent, as a mailbox that does not exist or a server that
// takes it for spam does. Limits with a ramp do not grow while too many calls are rejected: see [limits.Ramp]. Whether
// the job succeeds, the handler says by what it returns.
//
// It returns an error if ctx is not the context of a call in flight.
func SetRejected(ctx context.Context) error {
	return inCall(ctx, "SetRejected", func(c *call) error {
		c.rejected = true
		return nil
	})
}
