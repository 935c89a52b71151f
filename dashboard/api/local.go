package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// LocalError is a problem that [API.Do] was answered with.
type LocalError struct {
	Status int // of HTTP
	Code   string
	Detail string
}

// Partly reports whether a change was made in some partitions of a queue, and others do not answer.
func (e *LocalError) Partly() bool { return e.Code == codePartly }

func (e *LocalError) Error() string { return e.Detail }

// Do returns the JSON that the API answers to a request of a path below /api/v1, for a program
// that prints the same. It needs no key and is not limited. A body that is not nil is sent as
// JSON. actor is who makes a change; "" for requests that make none. Problems are [*LocalError].
func (a *API) Do(ctx context.Context, actor, method, path string, query url.Values, body any) (json.RawMessage, error) {
	target := url.URL{Scheme: "http", Host: "localhost", Path: "/", RawQuery: query.Encode()}
	target.RawPath = Base + path
	target.Path, _ = url.PathUnescape(target.RawPath)
	var text io.Reader = http.NoBody
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		text = bytes.NewReader(encoded)
	}
	r, err := http.NewRequestWithContext(ctx, method, target.String(), text)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	c := caller{key: Key{ID: cmp.Or(actor, localActor), Scopes: []Scope{Admin}}}
	_, c.pattern = a.mux.Handler(r)
	out := &recorder{header: http.Header{}}
	a.admitted(out, withCaller(r, c))
	if out.status >= 400 {
		var p struct{ Code, Detail string }
		if json.Unmarshal([]byte(out.body.String()), &p) != nil || p.Detail == "" {
			p.Detail = http.StatusText(out.status)
		}
		return nil, &LocalError{out.status, p.Code, p.Detail}
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
