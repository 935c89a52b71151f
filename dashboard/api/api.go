// Package api is Headgate's HTTP API: programs enqueue jobs, and operators observe
// and change queues.
//
// [New] returns a handler for all paths below /api/v1. [API.ServeHTTP] authenticates
// the caller ([Keys]), applies the request limits, and then checks the caller's scopes
// and tenants. Requests that are refused for lack of permission are listed beside the
// audit log. Every error is a problem+json document.
//
// The API is described at /api/v1/openapi.json, and for humans in docs/api.md.
package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/encryption"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// Base is the path of the API below the prefix at which it is mounted.
const Base = "/api/v1"

// Config configures an [API].
type Config struct {
	// Redis has the queues. It is required. The caller closes it.
	Redis redis.UniversalClient

	// Inspector can be shared, so that its readings are shared too. nil: the API creates one.
	Inspector *inspect.Inspector

	// Keys returns the keys in force; it is called for each request. nil: no key is needed, and
	// only requests from this machine are accepted.
	Keys func() *Keys

	// FullAt is the part of Redis's maxmemory from which jobs are refused; see
	// [queue.Client.FullAt].
	FullAt float64

	// PayloadKeys encrypt and decrypt payloads and results; see [queue.Client.Encrypt].
	PayloadKeys *encryption.Keys

	ReadOnly bool          // refuse to enqueue jobs and to make changes
	Requests RequestLimits // the rates at which requests are accepted

	// Observe is called after each decision of Requests; see [httplimit.MiddlewareConfig].
	// nil: nobody observes.
	Observe func(throttle.Observation)

	// CheckPayload returns the errors for which the handler of a kind would fail a payload
	// permanently. PayloadCosts returns the estimated costs of a payload for limits with a unit;
	// jobs that name less take as much. nil: payloads are left to the workers.
	CheckPayload func(kind string, payload json.RawMessage) []error
	PayloadCosts func(kind string, payload json.RawMessage) map[string]int64

	// PrivateHost returns the host that a job calls if its address is certainly private. The
	// answer to the request warns if no worker calls such addresses. nil: no job does.
	PrivateHost func(kind string, payload json.RawMessage) string

	// SenderDomain returns the domain from which a job sends mail, in lower case; "" if it sends
	// none. nil: no job does.
	SenderDomain func(kind string, payload json.RawMessage) string

	// Redact has further names of payload fields whose values are hidden, besides those that
	// always are, such as passwords and tokens.
	Redact []string

	// Audit is called with each change that is made over the API. They are logged, too.
	// nil: no further record is kept.
	Audit func(operate.AuditEntry)

	Version string       // reported by /session
	Demo    Demo         // nil: not a demo
	Logger  *slog.Logger // nil: no logging
}

// Demo has the controls of a demo.
type Demo interface {
	// Unshaped reports on the tenant whose calls can bypass all limits, to show what limits are
	// good for: whether they do, its name, and how many of its calls were accepted and rejected.
	Unshaped() (on bool, tenant string, sent, rejected int64)

	// SetUnshaped turns bypassing limits on or off.
	SetUnshaped(on bool)
}

// API is an http.Handler. [API.Run] must run while it serves. It is safe for concurrent
// use.
type API struct {
	config Config
	mux    *http.ServeMux
	routes []route
	open   map[string]bool // patterns of routes that need no key

	parameters map[string][]string // by method and path, see [parameters]
	handler    http.Handler
	client     *queue.Client
	batches    *slots
	chunkTime  time.Duration // for each chunk of a batch to arrive
	writeTime  time.Duration // for the client to read an answer that came late
	streams    *slots
	actions    *slots
	trials     *slots
	reports    *slots // of conformance
	refused    *refusals
	lab        *lab
	hide       *redact.Fields
	watch      *watch
	shares     *shares
	expect     *expectations
	inspector  *inspect.Inspector
}

// New returns an API. It checks the configuration, but sends nothing to Redis.
func New(config Config) (*API, error) {
	if config.Redis == nil {
		return nil, errors.New("api: Config.Redis is missing")
	}
	config.Requests = config.Requests.withDefaults()
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	a := &API{
		config: config, mux: http.NewServeMux(), open: map[string]bool{}, client: queue.NewClient(config.Redis).RequireLimits().FullAt(config.FullAt).Encrypt(config.PayloadKeys),
		batches: newSlots("batches", maxBatches), chunkTime: chunkTime, writeTime: writeTime, streams: newSlots("streams", maxStreams), actions: newSlots("actions", maxActions), trials: newSlots("trials", maxTrials),
		reports: newSlots("reports of conformance", maxReports), refused: newRefusals(config.Redis, config.Logger), hide: redact.New(config.Redact),
	}
	if a.inspector = config.Inspector; a.inspector == nil {
		a.inspector = inspect.New(config.Redis).Decrypt(config.PayloadKeys)
	}
	a.expect = &expectations{inspector: a.inspector, most: forecastTimeout}
	a.watch = newWatch(a)
	a.shares = &shares{api: a, queues: map[string]*usage{}}
	var err error
	if a.lab, err = newLab(config.Redis); err != nil {
		return nil, err
	}
	if a.parameters, err = parameters(); err != nil {
		return nil, err
	}
	a.routes = a.table()
	for _, route := range a.routes {
		a.open[route.method+" "+Base+route.path] = route.open
		a.mux.HandleFunc(route.method+" "+Base+route.path, func(w http.ResponseWriter, r *http.Request) { a.serve(route, w, r) })
	}
	limits, err := newRequestLimits(config)
	if err != nil {
		return nil, err
	}
	limited := limits.wrap(http.HandlerFunc(a.admitted))
	crossOrigin := http.NewCrossOriginProtection()
	a.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		identify(w, r)
		if err := crossOrigin.Check(r); err != nil {
			newProblem(http.StatusForbidden, codeForbidden, "Cross-origin requests may not make changes.").write(w, r)
			return
		}
		c := a.authenticate(r)
		_, c.pattern = a.mux.Handler(r)
		limited.ServeHTTP(w, withCaller(r, c))
	})
	return a, nil
}

// ServeHTTP serves requests below /api/v1.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.handler.ServeHTTP(w, r) }

// Run updates the streams of events until ctx is done, and then ends them, so that a server
// that shuts down does not wait for them.
func (a *API) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	parts.Go(func() { a.watch.run(ctx) })
	parts.Go(func() { a.shares.run(ctx) })
	parts.Go(func() { a.refused.run(ctx) })
	parts.Wait()
	return nil
}

// admitted handles a request that the request limits admitted.
func (a *API) admitted(w http.ResponseWriter, r *http.Request) {
	c := callerOf(r)
	if c.denied != nil && !a.open[c.pattern] {
		a.fail(w, r, c.denied)
		return
	}
	if c.pattern != "" {
		a.mux.ServeHTTP(w, r)
		return
	}
	if allow := a.methodsAt(r); len(allow) > 0 {
		p := newProblem(http.StatusMethodNotAllowed, codeMethod, "Method %s is not allowed here; use %s.", r.Method, strings.Join(allow, ", "))
		p.allow = strings.Join(allow, ", ")
		a.fail(w, r, p)
		return
	}
	a.fail(w, r, newProblem(http.StatusNotFound, codeNotFound, "There is no such path; see %s/openapi.json.", Base))
}

// methodsAt returns the methods that the path of a request supports.
func (a *API) methodsAt(r *http.Request) []string {
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		other := *r
		other.Method = method
		if _, pattern := a.mux.Handler(&other); pattern != "" {
			methods = append(methods, method)
		}
	}
	return methods
}

// answer is the response of a handler.
type answer struct {
	status int // 0: 200
	body   any
}

// request is a request with its caller.
type request struct {
	*http.Request
	w      http.ResponseWriter
	caller caller
	log    func(operate.AuditEntry)
}

// param returns a parameter of the URL. [http.Request.FormValue] would read the body, too, of any method, and keep the files in
// it on disk.
func (r *request) param(name string) string { return r.URL.Query().Get(name) }

// by returns the operator who makes a change.
func (r *request) by(reason string) operate.Operator {
	return operate.Operator{Actor: r.caller.actor(), Reason: reason, Log: r.log}
}

const (
	maxAnswerTime = 15 * time.Second
	maxActionTime = 10 * time.Minute // for verbs over many jobs
	maxActions    = 8                // over many jobs, at once
)

// serve calls the handler of a route if the caller has permission.
func (a *API) serve(route route, w http.ResponseWriter, httpRequest *http.Request) {
	c := callerOf(httpRequest)
	r := &request{Request: httpRequest, w: w, caller: c, log: a.changed}
	if p := a.mayNot(route, r); p != nil {
		a.fail(w, httpRequest, p)
		return
	}
	if err := a.checkQuery(route, httpRequest); err != nil {
		a.fail(w, httpRequest, err)
		return
	}
	if route.stream != nil || route.most > maxAnswerTime {
		// These can take longer than the timeouts of the server, and have their own.
		control := http.NewResponseController(w)
		reading, writing := time.Time{}, time.Time{}
		if route.stream == nil {
			reading = time.Now().Add(a.chunkTime) // until readBody has read all
			writing = time.Now().Add(route.most + a.writeTime)
		}
		_ = control.SetReadDeadline(reading)
		_ = control.SetWriteDeadline(writing)
	}
	if route.stream != nil {
		if err := route.stream(r); err != nil {
			a.fail(w, httpRequest, err)
		}
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), cmp.Or(route.most, maxAnswerTime))
	defer cancel()
	r.Request = r.WithContext(ctx)
	answer, err := route.handle(r)
	if err != nil {
		a.fail(w, r.Request, err)
		return
	}
	send(w, r.Request, cmp.Or(answer.status, http.StatusOK), "application/json", answer.body)
}

// fail responds with a problem. It records refusals for lack of permission and logs internal
// errors.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	if p.refusal != "" {
		a.refused.add(r, callerOf(r), p)
	}
	if p.Code == codeInternal {
		a.config.Logger.Error("a request failed", "method", r.Method, "path", r.URL.Path, "request", w.Header().Get(requestIDHeader), "error", err)
	}
	p.write(w, r)
}

// changed logs a change at once: in Redis, others' entries may follow until it is dropped.
func (a *API) changed(e operate.AuditEntry) {
	a.config.Logger.Info("audit entry", "audit", e)
	if a.config.Audit != nil {
		a.config.Audit(e)
	}
}

// clip shortens a text to 100 bytes.
func clip(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > 100 {
		text = strings.ToValidUTF8(text[:100], "") + "…"
	}
	return text
}
