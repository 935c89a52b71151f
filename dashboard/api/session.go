package api

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/fanout"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/operate"
)

type sessionJSON struct {
	Actor    string   `json:"actor"`
	Scopes   []Scope  `json:"scopes"`
	Tenants  []string `json:"tenants,omitempty"` // omitted: all
	Queues   []string `json:"queues,omitempty"`  // omitted: all
	Kinds    []string `json:"kinds,omitempty"`   // omitted: all
	ReadOnly bool     `json:"read_only"`
	Version  string   `json:"version"`
	Demo     bool     `json:"demo"`
	Auth     string   `json:"auth"` // "none": no key, only this machine; or "key"
}

// session reports who the caller is and what it may do.
func (a *API) session(r *request) (answer, error) {
	s := sessionJSON{
		Actor: r.caller.actor(), Tenants: r.caller.key.Tenants, Queues: r.caller.key.Queues, Kinds: r.caller.key.Kinds, ReadOnly: a.config.ReadOnly,
		Version: a.config.Version, Demo: a.config.Demo != nil, Auth: "key",
	}
	if a.config.Keys == nil {
		s.Auth = "none"
	}
	for _, scope := range []Scope{Read, Enqueue, Operate, Admin} {
		if r.caller.key.may(scope) {
			s.Scopes = append(s.Scopes, scope)
		}
	}
	return answer{body: s}, nil
}

const (
	maxAudit     = 1000 // entries that are read for keys of single tenants
	defaultAudit = 100
	auditWait    = 5 * time.Second // for those of other queues, once one has come
)

type auditPage struct {
	Entries []auditJSON `json:"entries"`
	Away    []string    `json:"away,omitempty"` // queues whose entries are missing; "" for those of keys, and for refused requests
}

// refusedRequests is the part of the audit that is of no queue: requests refused for lack of rights.
const refusedRequests = "*"

// audit lists changes and refusals, newest first.
func (a *API) audit(r *request) (answer, error) {
	n, err := number(r, "limit", defaultAudit, operate.MaxAudit)
	if err != nil {
		return answer{}, err
	}
	names := []string{r.param("queue")}
	if names[0] == "" {
		if names, err = inspect.Queues(r.Context(), a.config.Redis); err != nil {
			return answer{}, err
		}
		names = append(names, "") // keys
	}
	// For keys of single tenants read more entries, since those of other tenants are dropped.
	most := n
	if !r.caller.all() {
		most = max(n, maxAudit)
	}
	parts := names
	if r.caller.all() {
		parts = append(parts, refusedRequests)
	}
	read, errs := fanout.Ask(r.Context(), auditWait, parts, func(ctx context.Context, name string) ([]operate.AuditEntry, error) {
		if name == refusedRequests {
			return a.refused.list(ctx, r.param("queue"))
		}
		return operate.Audit(ctx, a.config.Redis, name, most)
	})
	var changes, refused []operate.AuditEntry
	var silent []string
	for i, name := range parts {
		if name == refusedRequests {
			refused, name = read[i], ""
		} else {
			changes = append(changes, read[i]...)
		}
		if errs[i] == nil {
			continue
		}
		if !away(errs[i]) || !slices.Contains(errs[:len(names)], nil) {
			return answer{}, errs[i]
		}
		if r.caller.mayQueue(name) && !slices.Contains(silent, name) {
			silent = append(silent, name)
		}
	}
	changes, refused = r.visible(changes), r.visible(refused)
	// Refusals have a quarter of the answer, or what changes leave: else anybody could hide changes behind them.
	refused = refused[:min(len(refused), max(n/4, n-len(changes)))]
	changes = changes[:min(len(changes), n-len(refused))]
	entries := []auditJSON{}
	for _, e := range r.visible(append(changes, refused...)) {
		entries = append(entries, auditOf(e))
	}
	return answer{body: auditPage{entries, silent}}, nil
}

// visible returns the entries that the caller may see, newest first.
func (r *request) visible(of []operate.AuditEntry) []operate.AuditEntry {
	of = slices.DeleteFunc(of, func(e operate.AuditEntry) bool { return !r.maySee(e) })
	slices.SortStableFunc(of, func(x, y operate.AuditEntry) int { return y.At.Compare(x.At) })
	return of
}

// maySee reports whether the caller may see an entry of the audit log.
func (r *request) maySee(e operate.AuditEntry) bool {
	c := r.caller
	return c.mayQueue(e.Queue) && (c.all() || e.Tenant != "" && c.mayTenant(e.Tenant)) && (len(c.key.Kinds) == 0 || e.Kind != "" && c.mayKind(e.Kind))
}

// number returns a whole number of the query.
func number(r *request, name string, preset, most int) (int, error) {
	text := r.param(name)
	if text == "" {
		return preset, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, invalid(name, "%.40q is not a whole number from 0 to %d", text, most)
	}
	return n, nil
}
