package api

import (
	"cmp"
	"slices"
	"strconv"

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
)

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
	var all []operate.AuditEntry
	for _, name := range names {
		// For keys of single tenants read more entries, since those of other tenants are dropped.
		most := n
		if !r.caller.all() {
			most = max(n, maxAudit)
		}
		some, err := operate.Audit(r.Context(), a.config.Redis, name, most)
		if err != nil {
			return answer{}, err
		}
		all = append(all, some...)
	}
	if r.caller.all() {
		refused, err := a.refused.list(r.Context(), n)
		if err != nil {
			return answer{}, err
		}
		for _, e := range refused {
			if r.param("queue") == "" || e.Queue == r.param("queue") {
				all = append(all, e)
			}
		}
	}
	slices.SortStableFunc(all, func(x, y operate.AuditEntry) int { return cmp.Or(y.At.Compare(x.At)) })
	entries := []auditJSON{}
	for _, e := range all {
		if len(entries) < n && r.maySee(e) {
			entries = append(entries, auditOf(e))
		}
	}
	return answer{body: map[string]any{"entries": entries}}, nil
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
