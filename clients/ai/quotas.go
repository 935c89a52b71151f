package ai

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/clients"
)

// quotas keeps what answers told of an account.
type quotas struct {
	mu    sync.Mutex
	known map[string]clients.Quota
}

// A provider cannot make a client keep more.
const (
	maxQuotas    = 16
	maxQuotaName = 40
)

// Quotas is what the provider told of the account's limits in the latest answers
// that named them, by name. Calls under way are not in it.
func (c *Client) Quotas() []clients.Quota {
	c.quotas.mu.Lock()
	defer c.quotas.mu.Unlock()
	all := make([]clients.Quota, 0, len(c.quotas.known))
	for _, quota := range c.quotas.known {
		all = append(all, quota)
	}
	slices.SortFunc(all, func(a, b clients.Quota) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// note takes over what an answer's headers tell.
func (q *quotas) note(header http.Header) {
	told := metersOf(header, clockOf(header))
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for name, m := range told {
		quota := clients.Quota{Name: name, Limit: m.limit, Remaining: m.remaining}
		if m.reset > 0 {
			quota.ResetsAt = now.Add(m.reset)
		}
		_, known := q.known[name]
		if !isQuotaName(name) || (!known && len(q.known) == maxQuotas) || (quota.Limit == 0 && quota.Remaining == nil) {
			continue
		}
		if q.known == nil {
			q.known = map[string]clients.Quota{}
		}
		q.known[name] = quota
	}
}

func isQuotaName(name string) bool {
	return len(name) <= maxQuotaName && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
