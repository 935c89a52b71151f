package api

import (
	"net/http"
	"time"
)

// route is one method and path, and who may use it.
type route struct {
	method, path string
	scopes       []Scope // any of them; empty: every key
	whole        bool    // refused to keys for single tenants
	changes      bool    // refused by a read-only server
	open         bool    // needs no key
	most         time.Duration
	handle       func(*request) (answer, error)
	stream       func(*request) error // instead of handle: writes its own response unless it returns an error
}

// table returns the routes in the order of openapi.json.
func (a *API) table() []route {
	const get, post, put, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	read, enqueue, operate, admin, either := []Scope{Read}, []Scope{Enqueue}, []Scope{Operate}, []Scope{Admin}, []Scope{Enqueue, Read}
	return []route{
		{method: get, path: "/session", handle: a.session},
		{method: get, path: "/openapi.json", open: true, handle: a.openapi},
		{method: get, path: "/version", handle: a.version},

		{method: post, path: "/jobs", scopes: enqueue, changes: true, handle: a.enqueueOne},
		{method: post, path: "/jobs/batch", scopes: enqueue, changes: true, stream: a.enqueueBatch},

		{method: get, path: "/audit", scopes: read, handle: a.audit},

		{method: get, path: "/events", scopes: read, stream: a.events},

		{method: get, path: "/queues", scopes: read, handle: a.queues},
		{method: get, path: "/queues/{q}", scopes: read, handle: a.oneQueue},
		{method: del, path: "/queues/{q}", scopes: admin, whole: true, changes: true, handle: a.unregister},
		{method: get, path: "/queues/{q}/history", scopes: read, whole: true, handle: a.historyOf},
		{method: get, path: "/queues/{q}/shares", scopes: read, whole: true, handle: a.sharesOf},
		{method: get, path: "/queues/{q}/tenants", scopes: read, handle: a.tenants},
		{method: get, path: "/queues/{q}/tenants/{t}", scopes: read, handle: a.tenant},
		{method: get, path: "/queues/{q}/jobs", scopes: read, handle: a.jobs},
		{method: get, path: "/queues/{q}/jobs/{id}", scopes: read, handle: a.job},
		{method: get, path: "/queues/{q}/failures", scopes: read, whole: true, handle: a.failures},
		{method: post, path: "/queues/{q}/estimate", scopes: either, handle: a.estimate},

		{method: post, path: "/queues/{q}/actions", scopes: operate, most: maxActionTime, handle: a.act},
		{method: post, path: "/queues/{q}/jobs/{id}/cancel", scopes: operate, changes: true, handle: a.actOnOne},
		{method: post, path: "/queues/{q}/jobs/{id}/retry", scopes: operate, changes: true, handle: a.actOnOne},
		{method: post, path: "/queues/{q}/jobs/{id}/run", scopes: admin, changes: true, handle: a.actOnOne},
		{method: del, path: "/queues/{q}/jobs/{id}", scopes: operate, changes: true, handle: a.actOnOne},
		{method: post, path: "/queues/{q}/pause", scopes: operate, changes: true, handle: a.pause},
		{method: post, path: "/queues/{q}/resume", scopes: operate, changes: true, handle: a.resume},

		{method: get, path: "/queues/{q}/conformance", scopes: read, whole: true, handle: a.conformance},

		{method: get, path: "/queues/{q}/limits", scopes: read, handle: a.limits},
		{method: get, path: "/queues/{q}/limits/file", scopes: read, whole: true, handle: a.limitsFile},
		{method: post, path: "/queues/{q}/trial", scopes: read, whole: true, handle: a.try},
		{method: put, path: "/queues/{q}/tenants/{t}/limits/{limit}", scopes: operate, handle: a.setLimit},
		{method: del, path: "/queues/{q}/tenants/{t}/limits/{limit}", scopes: operate, changes: true, handle: a.clearLimit},

		{method: get, path: "/workers", scopes: read, whole: true, handle: a.workers},
		{method: get, path: "/providers", scopes: read, whole: true, handle: a.providers},
		{method: get, path: "/limits/reload", scopes: read, whole: true, handle: a.reload},

		{method: get, path: "/lab", scopes: read, handle: a.labList},
		{method: post, path: "/lab/{id}/take", scopes: read, changes: true, handle: a.labTake},
		{method: post, path: "/lab/{id}/reset", scopes: read, changes: true, handle: a.labReset},
		{method: get, path: "/lab/unshaped", scopes: read, handle: a.labUnshaped},
		{method: post, path: "/lab/unshaped", scopes: admin, changes: true, handle: a.labSetUnshaped},
	}
}
