package openapitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/internal/test/arrivals"
	"github.com/headgate/headgate/internal/test/get"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// rig is an API whose requests and answers are held against its description.
type rig struct {
	t        *testing.T
	server   *httptest.Server
	router   routers.Router // by the description
	queue    string
	covered  map[string]bool // operations that answered as they should
	document []byte
	redis    *redistest.Server
}

func newRig(t *testing.T) *rig {
	redis := redistest.Start(t)
	client := redis.Client()
	a, err := api.New(api.Config{Redis: client, Demo: &demo{}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(a)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	text := []byte(get.Text(t, server.URL+api.Base+"/openapi.json"))
	// Where this server is, the document cannot know.
	text = bytes.Replace(text, []byte(`"url": "/api/v1"`), []byte(`"url": "`+server.URL+api.Base+`"`), 1)
	text = bytes.Replace(text, []byte(`"url":"/api/v1"`), []byte(`"url":"`+server.URL+api.Base+`"`), 1)
	document, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	if !document.IsOpenAPI31OrLater() {
		t.Fatalf("the document is OpenAPI %s", document.OpenAPI)
	}
	if err := document.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	router, err := gorillamux.NewRouter(document)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t, server, router, redistest.Queue(t), map[string]bool{}, text, redis}
	set := limits.Set{Queues: map[string]limits.Queue{r.queue: {Kinds: []string{"call"}, MaxBacklog: 1000, Limits: []limits.Limit{
		{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1), Burst: 2, Per: []string{"tenant"}},
		{Name: "flight", Algorithm: throttle.Concurrency, Concurrency: 5},
	}}}}
	if err := operate.Publish(t.Context(), client, set); err != nil {
		t.Fatal(err)
	}
	return r
}

type demo struct{ on bool }

func (d *demo) Unshaped() (bool, string, int64, int64) { return d.on, "unshaped", 1, 2 }
func (d *demo) SetUnshaped(on bool)                    { d.on = on }

// do makes a request, which has to be as described unless the answer is to be an
// error, and holds the answer against the description.
func (r *rig) do(status int, method, path, body string, headers ...string) map[string]any {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.server.URL+api.Base+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	at := fmt.Sprintf("%s %s %.100s", method, path, body)
	route, params, err := r.router.FindRoute(request)
	if err != nil {
		r.t.Fatalf("%s: %v", at, err)
	}
	described := &openapi3filter.RequestValidationInput{Request: request, PathParams: params, Route: route, Options: &openapi3filter.Options{
		MultiError: true, IncludeResponseStatus: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
	}}
	if status < 400 {
		if err := openapi3filter.ValidateRequest(r.t.Context(), described); err != nil {
			r.t.Errorf("%s: the request: %v", at, err)
		}
	}
	request.Body = io.NopCloser(strings.NewReader(body))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if response.StatusCode != status {
		r.t.Fatalf("%s: %d %s; want %d", at, response.StatusCode, text, status)
	}
	answer := &openapi3filter.ResponseValidationInput{RequestValidationInput: described, Status: status, Header: response.Header, Options: described.Options}
	if err := openapi3filter.ValidateResponse(r.t.Context(), answer.SetBodyBytes(text)); err != nil {
		r.t.Errorf("%s: the answer: %v\n%s", at, err, text)
	}
	if status < 400 {
		r.covered[method+" "+strings.SplitN(path, "?", 2)[0]] = true
	}
	var value map[string]any
	if err := json.Unmarshal(text, &value); err != nil {
		r.t.Fatalf("%s: %v: %s", at, err, text)
	}
	return value
}

// Every operation answers as it says, and so does every error.
func TestAnswersAreAsDescribed(t *testing.T) {
	r := newRig(t)
	at := "/queues/" + r.queue
	job := `{"kind":"call","tenant":"acme","payload":{"n":1},"attributes":{"domain":"example.com"},"costs":{"tokens":3},"deadline":"2030-01-01T00:00:00Z"}`
	id := url.PathEscape(r.do(202, "POST", "/jobs", job, "Idempotency-Key", "k1")["id"].(string))
	r.do(202, "POST", "/jobs", job, "Idempotency-Key", "k1")
	for range 3 {
		r.do(202, "POST", "/jobs", job)
	}
	r.do(202, "POST", "/jobs/batch", `{"jobs":[`+job+`]}`)
	r.do(207, "POST", "/jobs/batch", `{"jobs":[`+job+`,{"kind":"call","tenant":"acme","payload":1,"cost":4611686018427387904}]}`)
	r.do(200, "GET", "/session", "")
	r.do(200, "GET", "/version", "")
	r.do(200, "GET", "/openapi.json", "")
	r.do(200, "GET", "/queues", "")
	r.do(200, "GET", at, "")
	r.do(200, "POST", at+"/pause", `{"tenant":"acme","for":"1m","reason":"a try"}`)
	r.do(200, "GET", at+"/tenants?search=a&sort=waiting&order=desc&limit=10", "")
	r.do(200, "GET", at+"/tenants/acme", "")
	r.do(200, "GET", at+"/jobs?state=waiting&limit=2", "")
	r.do(200, "GET", at+"/jobs/"+id, "")
	r.do(200, "POST", at+"/resume", `{"tenant":"acme","reason":"a try"}`)
	r.do(200, "POST", at+"/estimate", `{"tenant":"acme","jobs":10}`)
	r.do(200, "GET", at+"/limits", "")
	limit := at + "/tenants/acme/limits/tenant"
	r.do(200, "PUT", limit, `{"rate":"2/s","dry_run":true}`)
	r.do(200, "PUT", limit, `{"rate":"2/s","for":"1m","reason":"a try"}`)
	r.do(200, "GET", at+"/limits", "")
	r.do(200, "GET", at+"/tenants/acme", "")
	r.do(200, "DELETE", limit, `{"reason":"a try"}`)
	r.do(200, "POST", at+"/jobs/"+id+"/cancel", `{"reason":"a try"}`)
	r.do(200, "GET", at+"/jobs/"+id, "")
	r.do(200, "GET", at+"/jobs?state=archived&reason=try", "")
	r.do(200, "GET", at+"/failures", "")
	r.do(200, "GET", at+"/conformance", "")
	r.do(200, "GET", at+"/limits/file", "")
	file := `{"file":"queues: {` + r.queue + `: {limits: [{name: all, algorithm: leaky_bucket, rate: 1/s}]}}"}`
	r.do(200, "POST", at+"/trial", file)
	if err := arrivals.Put(t.Context(), r.redis.Client(), r.queue, arrivals.Call{Tenant: "acme", Came: time.Now()}); err != nil {
		t.Fatal(err)
	}
	r.do(200, "POST", at+"/trial", file)
	r.do(400, "POST", at+"/trial", `{"file":"queues: 1"}`)
	r.do(409, "POST", at+"/jobs/"+id+"/cancel", `{"reason":"again"}`)
	r.do(200, "POST", at+"/jobs/"+id+"/retry", `{"reason":"a try"}`)
	r.do(200, "POST", at+"/jobs/"+id+"/run", `{"reason":"a try"}`)
	r.do(200, "POST", at+"/actions", `{"verb":"cancel","tenant":"acme","dry_run":true}`)
	r.do(200, "POST", at+"/actions", `{"verb":"cancel","tenant":"acme","reason":"a try"}`)
	r.do(200, "DELETE", at+"/jobs/"+id, `{"reason":"a try"}`)
	r.do(200, "GET", "/audit?limit=5", "")
	r.do(200, "GET", at+"/shares", "")
	// A history without a point says nothing of what points are like; it is told when
	// its first second is over.
	for end := time.Now().Add(time.Minute); len(r.do(200, "GET", at+"/history", "")["points"].([]any)) == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the history has no point")
		}
	}
	for _, path := range []string{"/workers", "/providers", "/limits/reload", "/lab", "/lab/unshaped"} {
		r.do(200, "GET", path, "")
	}
	r.do(200, "POST", "/lab/unshaped", `{"on":true}`)
	for _, id := range []string{"token_bucket", "leaky_bucket_shaping"} {
		r.do(200, "POST", "/lab/"+id+"/take", `{"n":10}`)
		r.do(200, "POST", "/lab/"+id+"/reset", "")
	}

	r.do(400, "POST", "/jobs", `{"kind":"call"}`)
	r.do(202, "POST", "/jobs", `{"kind":"call","tenant":"b","payload":1,"key":"x"}`)
	r.do(409, "POST", "/jobs", `{"kind":"call","tenant":"b","payload":2,"key":"x"}`)
	r.do(404, "GET", at+"/jobs/none", "")
	r.do(415, "POST", "/jobs", `x`, "Content-Type", "text/plain")
	r.do(413, "POST", at+"/pause", `{"reason":"`+strings.Repeat("x", 100_000)+`"}`)

	r.do(409, "DELETE", at, `{"reason":"it has jobs"}`)
	for _, verb := range []string{"cancel", "delete"} {
		r.do(200, "POST", at+"/actions", `{"verb":"`+verb+`","reason":"a try"}`)
	}
	r.do(200, "DELETE", at, `{"reason":"a try"}`)

	// The stream is no one answer; dashboard/api holds its types against the schemas.
	r.covered["GET /events"] = true
	for _, operation := range r.described() {
		pattern := regexp.MustCompile("^" + regexp.MustCompile(`\\{\w+\\}`).ReplaceAllString(regexp.QuoteMeta(operation), "[^/]+") + "$")
		if !slices.ContainsFunc(slices.Collect(maps.Keys(r.covered)), pattern.MatchString) {
			t.Errorf("%s was not asked", operation)
		}
	}
}

// described are the operations of the document.
func (r *rig) described() (all []string) {
	var d struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(r.document, &d); err != nil {
		r.t.Fatal(err)
	}
	for path, operations := range d.Paths {
		for method := range operations {
			if method != "parameters" {
				all = append(all, strings.ToUpper(method)+" "+path)
			}
		}
	}
	return all
}
