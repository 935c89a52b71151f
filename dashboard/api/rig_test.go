package api

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

func TestMain(m *testing.M) {
	// Tests that run beside others wait far more than they compute.
	_ = flag.Set("test.parallel", "8")
	redistest.Main(m)
}

// rig is an API on a Redis, with a queue of its own.
type rig struct {
	t      testing.TB
	redis  *redis.Client
	queue  string
	api    *API
	server *httptest.Server
	http   *http.Client
	key    string // that requests are made with; "": none
}

// newRig runs an API; change may change its configuration.
func newRig(t testing.TB, server *redistest.Server, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, redis: server.Client(), queue: redistest.Queue(t)}
	config := Config{Redis: r.redis, Version: "v1"}
	if change != nil {
		change(&config)
	}
	redistest.Serve(r.redis, r.queue, "call") // before the API looks for the first time
	if err := operate.Publish(t.Context(), r.redis, limits.Set{Queues: map[string]limits.Queue{r.queue: {}}}); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.api, err = New(config); err != nil {
		t.Fatal(err)
	}
	// Each job has its forecast, however busy this machine is.
	r.api.expect.most, r.api.expect.spent, r.api.expect.since = time.Minute, -time.Hour, time.Now().Add(time.Hour)
	r.server = httptest.NewServer(r.api)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.api.Run(ctx) }()
	r.http = r.server.Client()
	r.http.Transport.(*http.Transport).MaxIdleConnsPerHost = 256
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		r.http.CloseIdleConnections()
		r.server.Close()
	})
	return r
}

// publish puts limits of the rig's queue in force: one per tenant.
func (r *rig) publish(rate throttle.Rate) {
	r.t.Helper()
	limits := limits.Set{Queues: map[string]limits.Queue{r.queue: {Limits: []limits.Limit{
		{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: rate, Burst: 1, Per: []string{"tenant"}},
	}}}}
	if err := operate.Publish(r.t.Context(), r.redis, limits); err != nil {
		r.t.Fatal(err)
	}
}

// reply is what the API answered.
type reply struct {
	status int
	header http.Header
	body   string
}

// get reads a field of the body, as in "top.tenant".
func (r reply) get(t testing.TB, path string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(r.body), &value); err != nil {
		t.Fatalf("%v: %.300s", err, r.body)
	}
	for name := range strings.SplitSeq(path, ".") {
		object, ok := value.(map[string]any)
		if !ok {
			t.Fatalf("no %s in %.300s", path, r.body)
		}
		value = object[name]
	}
	return value
}

func (r *rig) do(method, path, body string, headers ...string) reply {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.server.URL+Base+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		request.Header.Set("Authorization", "Bearer "+r.key)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			request.Host = headers[i+1]
		}
	}
	response, err := r.http.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return reply{response.StatusCode, response.Header, string(text)}
}

// want fails the test unless the answer has the status, and holds the text.
func (r *rig) want(status int, text, method, path, body string, headers ...string) reply {
	r.t.Helper()
	got := r.do(method, path, body, headers...)
	if got.status != status || !strings.Contains(got.body, text) {
		r.t.Fatalf("%s %s %.200s: %d %.600s; want %d with %q", method, path, body, got.status, got.body, status, text)
	}
	if status >= 400 && got.header.Get("Content-Type") != "application/problem+json" {
		r.t.Fatalf("%s %s: an error of type %s", method, path, got.header.Get("Content-Type"))
	}
	return got
}
