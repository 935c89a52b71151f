package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
)

// Get returns the JSON that the API answers to a GET of a path below /api/v1, for a program that
// prints the same. It needs no key and is not limited. An error is the detail of the problem.
func (a *API) Get(ctx context.Context, path string, query url.Values) (json.RawMessage, error) {
	target := url.URL{Scheme: "http", Host: "localhost", Path: "/", RawQuery: query.Encode()}
	target.RawPath = Base + path
	target.Path, _ = url.PathUnescape(target.RawPath)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, err
	}
	c := caller{key: Key{ID: localActor, Scopes: []Scope{Admin}}}
	_, c.pattern = a.mux.Handler(r)
	out := &recorder{header: http.Header{}}
	a.admitted(out, withCaller(r, c))
	if out.status >= 400 {
		var p struct{ Detail string }
		if json.Unmarshal([]byte(out.body.String()), &p) != nil || p.Detail == "" {
			p.Detail = http.StatusText(out.status)
		}
		return nil, errors.New(p.Detail)
	}
	return json.RawMessage(strings.TrimSpace(out.body.String())), nil
}

// recorder keeps an answer.
type recorder struct {
	header http.Header
	status int
	body   strings.Builder
}

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}
func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(p)
}
