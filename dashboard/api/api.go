// Package api is Headgate's HTTP API: jobs come in, and operators see what goes on
// and step in.
//
// [New] makes a handler for everything below /api/v1. [API.ServeHTTP] finds out
// who asks ([Keys]), then whether they may (scope and tenants), then whether the
// request limits admit it; what is refused for lack of rights stands in a list of
// its own beside the audit. Each error is a problem+json document.
//
// The API describes itself at /api/v1/openapi.json; docs/api.md is for people.
package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/operate"
)

// Base is where the API lies below wherever it is mounted.
const Base = "/api/v1"

// Config says what an API serves, and to whom.
type Config struct {
	// Redis is where the queues are. Required; it stays the caller's to close.
	Redis redis.UniversalClient

	// Inspector shares its readings with whoever else asks it; nil: the API has its own.
	Inspector *inspect.Inspector

	// Keys are those in force, asked anew for each request. nil: no key is needed
	// on this machine, and nobody else is let in.
	Keys func() *Keys

	ReadOnly bool          // nothing can be enqueued or changed
	Requests RequestLimits // how many requests are taken

	// CheckPayload says what the handler of a kind would refuse for good, and
	// PayloadCosts what a job takes of limits with a unit when it does not say. nil:
	// payloads are the workers' affair.
	CheckPayload func(kind string, payload json.RawMessage) []error
	PayloadCosts func(kind string, payload json.RawMessage) map[string]int64

	// Redact are more names of payload fields whose values are not shown, besides
	// those that are never: passwords, tokens and the like.
	Redact []string

	Version string       // that /session names
	Demo    Demo         // nil: this is no demo
	Logger  *slog.Logger // nil: nothing is logged
}

// Demo is what only a demo has.
type Demo interface {
	// Unshaped is a tenant whose jobs go past all limits, to show what limits are
	// good for: whether it is on, its name, and what became of its calls.
	Unshaped() (on bool, tenant string, sent, rejected int64)

	// SetUnshaped turns it on or off.
	SetUnshaped(on bool)
}

// API is an http.Handler; [API.Run] has to run beside it. It is safe for
// concurrent use.
type API struct {
	config    Config
	logger    *slog.Logger
	mux       *http.ServeMux
	routes    []route
	handler   http.Handler
	client    *queue.Client
	batches   chan struct{} // a place for each batch under way
	refused   *refusals
	lab       *lab
	hide      *redaction
	watch     *watch
	expect    *expectations
	inspector *inspect.Inspector
}

// New checks the configuration. Redis is not asked.
func New(config Config) (*API, error) {
	if config.Redis == nil {
		return nil, errors.New("api: Config.Redis is missing")
	}
	config.Requests = config.Requests.withDefaults()
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	a := &API{
		config: config, logger: config.Logger, mux: http.NewServeMux(), client: queue.NewClient(config.Redis),
		batches: make(chan struct{}, maxBatches), refused: newRefusals(config.Redis, config.Logger), hide: newRedaction(config.Redact),
	}
	if a.inspector = config.Inspector; a.inspector == nil {
		a.inspector = inspect.New(config.Redis)
	}
	a.expect = &expectations{inspector: a.inspector, lanes: map[laneOf]*expected{}}
	a.watch = newWatch(a)
	var err error
	if a.lab, err = newLab(config.Redis); err != nil {
		return nil, err
	}
	a.routes = a.table()
	for _, route := range a.routes {
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
		if err := crossOrigin.Check(r); err != nil {
			newProblem(http.StatusForbidden, codeForbidden, "A page from elsewhere may change nothing here.").write(w, r)
			return
		}
		c := a.authenticate(r)
		_, c.pattern = a.mux.Handler(r)
		limited.ServeHTTP(w, withCaller(r, c))
	})
	return a, nil
}

// ServeHTTP answers requests below /api/v1.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.handler.ServeHTTP(w, r) }

// Run keeps what is watched up to date until ctx is done, and then ends all
// streams: a server that waits for its requests to end needs that.
func (a *API) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	parts.Go(func() { a.watch.run(ctx) })
	parts.Go(func() { a.refused.run(ctx) })
	parts.Wait()
	return nil
}

// admitted is what the request limits let through.
func (a *API) admitted(w http.ResponseWriter, r *http.Request) {
	c := callerOf(r)
	if c.denied != nil {
		a.fail(w, r, c.denied)
		return
	}
	if c.pattern != "" {
		a.mux.ServeHTTP(w, r)
		return
	}
	if allow := a.methodsAt(r); len(allow) > 0 {
		p := newProblem(http.StatusMethodNotAllowed, codeMethod, "%s is none of the methods here: %s.", r.Method, strings.Join(allow, ", "))
		p.allow = strings.Join(allow, ", ")
		a.fail(w, r, p)
		return
	}
	a.fail(w, r, newProblem(http.StatusNotFound, codeNotFound, "There is nothing at this path; %s/openapi.json says what there is.", Base))
}

// methodsAt are those that the path of a request has.
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

// answer is what a handler has to say.
type answer struct {
	status int // 0: 200
	body   any
}

// request is one that was let through to its handler.
type request struct {
	*http.Request
	w      http.ResponseWriter
	caller caller
}

// by is who makes a change.
func (r *request) by(reason string) operate.Operator {
	return operate.Operator{Actor: r.caller.actor(), Reason: reason}
}

const (
	maxAnswerTime = 15 * time.Second
	maxActionTime = 10 * time.Minute // for verbs over many jobs
)

// serve hands a request to its route's handler, if its caller may.
func (a *API) serve(route route, w http.ResponseWriter, httpRequest *http.Request) {
	c := callerOf(httpRequest)
	r := &request{Request: httpRequest, w: w, caller: c}
	if p := a.mayNot(route, r); p != nil {
		a.fail(w, httpRequest, p)
		return
	}
	if route.stream != nil || route.most > maxAnswerTime {
		// These take longer than a server gives a request, and end by themselves.
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Time{})
		_ = control.SetWriteDeadline(time.Time{})
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

// mayNot says why a caller may not use a route.
func (a *API) mayNot(route route, r *request) *problem {
	forbid := func(why, format string, args ...any) *problem {
		p := newProblem(http.StatusForbidden, codeForbidden, format, args...)
		p.refusal = why
		return p
	}
	if len(route.scopes) > 0 && !slices.ContainsFunc(route.scopes, r.caller.key.may) {
		scope := string(route.scopes[0])
		return forbid("no scope "+scope, "This needs a key with the scope %s.", scope)
	}
	if route.whole && !r.caller.all() {
		return forbid("not for single tenants", "This is about whole queues, and the key is for single tenants.")
	}
	if tenant := r.PathValue("t"); tenant != "" && !r.caller.mayTenant(tenant) {
		return forbid("tenant "+clip(tenant), "The key is not for this tenant.")
	}
	if route.changes {
		return a.mayNotChange()
	}
	return nil
}

func (a *API) mayNotChange() *problem {
	if a.config.ReadOnly {
		return newProblem(http.StatusForbidden, codeReadOnly, "This server changes nothing: it was started read-only.")
	}
	return nil
}

// otherTenant is the answer to a caller who named a tenant that is not theirs.
func otherTenant(tenant string) *problem {
	p := newProblem(http.StatusForbidden, codeForbidden, "The key is not for this tenant.")
	p.refusal = "tenant " + clip(tenant)
	return p
}

// wholeOnly refuses callers who are for single tenants.
func wholeOnly(r *request) *problem {
	if r.caller.all() {
		return nil
	}
	p := newProblem(http.StatusForbidden, codeForbidden, "The key is for single tenants: name one of them.")
	p.refusal = "not for single tenants"
	return p
}

// fail answers with a problem. Refusals for lack of rights are noted, and what is
// the server's own fault is logged.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	if p.refusal != "" {
		a.refused.add(r, callerOf(r), p)
	}
	if p.Code == codeInternal {
		a.logger.Error("a request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	p.write(w, r)
}

// clip bounds what is told of a text.
func clip(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > 100 {
		text = strings.ToValidUTF8(text[:100], "") + "…"
	}
	return text
}
