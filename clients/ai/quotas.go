package ai

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/clients"
	shared "github.com/headgate/headgate/clients/internal/transport"
)

// quotas has the limits of an account that answers reported.
type quotas struct {
	mu    sync.Mutex
	known map[string]clients.Quota
}

// Bounds on what a provider can make a client keep.
const (
	maxQuotas    = 16
	maxQuotaName = 40
)

// Quotas returns the account's limits, sorted by name, as last reported in answers. Calls in
// flight are not included.
func (c *Client) Quotas() []clients.Quota {
	c.quotas.mu.Lock()
	defer c.quotas.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.quotas.known), byName)
}

func byName(a, b clients.Quota) int { return strings.Compare(a.Name, b.Name) }

// note records and reports the limits in an answer's headers.
func (c *Client) note(ctx context.Context, header http.Header) {
	latest := QuotasOf(header)
	c.quotas.note(latest)
	if c.onQuota == nil {
		return
	}
	for _, quota := range latest {
		c.onQuota(ctx, quota)
	}
}

func (q *quotas) note(latest []clients.Quota) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, quota := range latest {
		if _, known := q.known[quota.Name]; !known && len(q.known) == maxQuotas {
			continue
		}
		if q.known == nil {
			q.known = map[string]clients.Quota{}
		}
		q.known[quota.Name] = quota
	}
}

// QuotasOf returns what the headers of an answer say of the account's limits, sorted by name: `x-ratelimit-*` of
// OpenAI and others, and `anthropic-ratelimit-*`.
func QuotasOf(header http.Header) (all []clients.Quota) {
	now := time.Now()
	for name, m := range metersOf(header, shared.Clock(header.Get("Date"))) {
		quota := clients.Quota{Name: name, Limit: m.limit, Remaining: m.remaining, Window: m.window(), At: now}
		if m.reset > 0 {
			quota.ResetsAt = now.Add(m.reset)
		}
		if isQuotaName(name) && (quota.Limit != 0 || quota.Remaining != nil) {
			all = append(all, quota)
		}
	}
	slices.SortFunc(all, byName)
	return all[:min(len(all), maxQuotas)]
}

func isQuotaName(name string) bool {
	return len(name) <= maxQuotaName && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
