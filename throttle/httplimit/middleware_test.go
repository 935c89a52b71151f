package httplimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/throttle"
)

// problem reads a problem+json answer.
func problem(t testing.TB, resp *http.Response, status int) map[string]any {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]any{}
	if resp.StatusCode != status || resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("answer %d %v %s; want a problem with status %d", resp.StatusCode, resp.Header, body, status)
	}
	if err := json.Unmarshal(body, &said); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if said["status"] != float64(status) || said["title"] == "" || resp.Header.Get("Content-Length") != strconv.Itoa(len(body)) {
		t.Errorf("problem %s with %v", body, resp.Header)
	}
	return said
}

func mustOK(t testing.TB, resp *http.Response) {
	t.Helper()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(body) != "ok" {
		t.Fatalf("answer %d %s; want 200 ok", resp.StatusCode, body)
	}
}

func TestMiddleware(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client()
	m := mustMiddleware(t, client, MiddlewareConfig{Rules: []Rule{{Limit: perHour("per user", 2), Key: ByUser(userOf)}}})
	next := &ok{}
	h := m.Wrap(next)

	first := get(h, with("User", "ann"))
	mustOK(t, first)
	for header, want := range map[string]string{
		"RateLimit-Policy":      `"per user";q=2;w=7200`,
		"RateLimit":             `"per user";r=1;t=3600`,
		"X-RateLimit-Limit":     "2",
		"X-RateLimit-Remaining": "1",
		"X-RateLimit-Reset":     "3600",
		"Retry-After":           "",
	} {
		if got := first.Header.Get(header); got != want {
			t.Errorf("allowed: %s: %q; want %q", header, got, want)
		}
	}
	mustOK(t, get(h, with("User", "ann")))

	refused := get(h, with("User", "ann"))
	said := problem(t, refused, 429)
	after, err := strconv.Atoi(refused.Header.Get("Retry-After"))
	if err != nil || after < 3000 || after > 3600 {
		t.Errorf("Retry-After: %q; want nearly an hour", refused.Header.Get("Retry-After"))
	}
	for header, want := range map[string]string{
		"RateLimit-Policy":      `"per user";q=2;w=7200`,
		"RateLimit":             fmt.Sprintf(`"per user";r=0;t=%d`, after),
		"X-RateLimit-Limit":     "2",
		"X-RateLimit-Remaining": "0",
		"X-RateLimit-Reset":     strconv.Itoa(after),
	} {
		if got := refused.Header.Get(header); got != want {
			t.Errorf("refused: %s: %q; want %q", header, got, want)
		}
	}
	if said["type"] != quotaExceeded || fmt.Sprint(said["violated-policies"]) != "[per user]" || !strings.Contains(fmt.Sprint(said["detail"]), strconv.Itoa(after)) {
		t.Errorf("problem %v", said)
	}

	mustOK(t, get(h, with("User", "bob")))
	if next.count() != 3 {
		t.Errorf("the handler served %d requests; want 3", next.count())
	}
}

func TestHeadHasNoBody(t *testing.T) {
	t.Parallel()
	m := mustMiddleware(t, redistest.Shared(t).Client(), MiddlewareConfig{Rules: []Rule{{Limit: perHour("all", 1), Key: Everyone}}})
	h := m.Wrap(&ok{})
	mustOK(t, get(h))
	resp := get(h, func(r *http.Request) { r.Method = http.MethodHead })
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != 429 || len(body) > 0 || resp.Header.Get("Content-Type") != "application/problem+json" || resp.Header.Get("Retry-After") == "" {
		t.Errorf("HEAD: %d %v %q", resp.StatusCode, resp.Header, body)
	}
}

// TestTogether holds that several rules are one round trip, and take from all of
// the limits or from none.
func TestTogether(t *testing.T) {
	t.Parallel()
	client := patient(t, redistest.Shared(t))
	name := prefix(t)
	user, ip, route := perHour("user", 3), perHour("ip", 2), perHour("route", 10)
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", &ok{})
	m := mustMiddleware(t, client, MiddlewareConfig{Prefix: name, Rules: []Rule{
		{Limit: user, Key: ByUser(userOf)}, {Limit: ip, Key: ByIP(ClientIP{})}, {Limit: route, Key: ByRoute(mux)},
	}})
	h := m.Wrap(mux)
	sent := &commands{}
	ask := func(name, addr, path string) *http.Response {
		return get(h, with("User", name), from(addr+":1"), func(r *http.Request) { r.URL.Path = path })
	}
	mustOK(t, ask("ann", "192.0.2.1", "/items/1")) // and the script is known now
	client.AddHook(sent)
	mustOK(t, ask("ann", "192.0.2.1", "/items/2"))
	refused := ask("ann", "192.0.2.1", "/items/3")
	if said := problem(t, refused, 429); fmt.Sprint(said["violated-policies"]) != "[ip]" {
		t.Errorf("problem %v; want the limit of the address", said)
	}
	if got, want := refused.Header.Get("RateLimit-Policy"), `"user";q=3;w=10800, "ip";q=2;w=7200, "route";q=10;w=36000`; got != want {
		t.Errorf("RateLimit-Policy: %s; want %s", got, want)
	}
	if sent.count() != 2 {
		t.Errorf("two requests sent %d commands; want 2", sent.count())
	}
	limiter, err := throttle.New(client, name, user, ip, route)
	if err != nil {
		t.Fatal(err)
	}
	left := func(keys ...string) int64 {
		d, err := limiter.Peek(t.Context(), 1, keys...)
		if err != nil {
			t.Fatal(err)
		}
		return d.Remaining
	}
	if got := left("ann", "other", "other"); got != 1 {
		t.Errorf("the user has %d left; want 1: a refusal takes nothing", got)
	}
	if got := left("other", "other", "GET /items/{id}"); got != 2 { // of the untouched ones the least: the address's burst
		t.Errorf("Peek of the route's bucket: %d", got)
	}
	if got := ask("ann", "192.0.2.2", "/items/3").StatusCode; got != 200 {
		t.Errorf("from another address: %d; want 200", got)
	}
	if got := ask("ann", "192.0.2.3", "/items/3"); fmt.Sprint(problem(t, got, 429)["violated-policies"]) != "[user]" {
		t.Error("the user's limit did not hold")
	}
}

// TestSkippedRule holds that a rule's bucket is the same one, whichever other
// rules apply.
func TestSkippedRule(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client()
	h := mustMiddleware(t, client, MiddlewareConfig{Rules: []Rule{
		{Limit: perHour("user", 2), Key: ByUser(userOf)}, {Limit: perHour("ip", 4), Key: ByIP(ClientIP{})},
	}}).Wrap(&ok{})

	resp := get(h, with("User", "ann"))
	mustOK(t, resp)
	if got := resp.Header.Get("RateLimit"); !strings.HasPrefix(got, `"user";r=1;`) {
		t.Errorf("RateLimit: %s", got)
	}
	for left := 2; left >= 0; left-- {
		resp := get(h)
		mustOK(t, resp)
		if got := resp.Header.Get("RateLimit"); !strings.HasPrefix(got, fmt.Sprintf(`"ip";r=%d;`, left)) {
			t.Errorf("RateLimit: %s; want %d left of the address's", got, left)
		}
		if got := resp.Header.Get("RateLimit-Policy"); got != `"ip";q=4;w=14400` {
			t.Errorf("RateLimit-Policy: %s", got)
		}
	}
	problem(t, get(h), 429)
	if said := problem(t, get(h, with("User", "ann")), 429); fmt.Sprint(said["violated-policies"]) != "[ip]" {
		t.Errorf("problem %v", said)
	}
	if resp := get(h, with("User", "ann"), from("192.0.2.77:1")); resp.Header.Get("X-RateLimit-Remaining") != "0" {
		t.Errorf("the user's bucket: %v", resp.Header)
	}
}

func TestNoRuleApplies(t *testing.T) {
	t.Parallel()
	h := mustMiddleware(t, redistest.Shared(t).Client(), MiddlewareConfig{Rules: []Rule{
		{Limit: perHour("user", 1), Key: ByUser(userOf)},
		{Limit: perHour("wrapped", 1), Key: func(*http.Request) (string, error) { return "", fmt.Errorf("today: %w", ErrSkip) }},
	}}).Wrap(&ok{})
	for range 3 {
		resp := get(h)
		mustOK(t, resp)
		for name := range resp.Header {
			if strings.Contains(name, "Ratelimit") {
				t.Errorf("%s without a limit", name)
			}
		}
	}
}

func TestNoKey(t *testing.T) {
	t.Parallel()
	broken := errors.New("no database")
	said := &errorLog{}
	next := &ok{}
	rule := func(err error) Rule {
		return Rule{Limit: perHour("x", 1), Key: func(*http.Request) (string, error) { return "", err }}
	}
	tests := map[string]struct {
		rule      Rule
		status    int
		challenge string
	}{
		"missing API key": {Rule{Limit: perHour("x", 1), Key: ByAPIKey("X-API-Key")}, 401, `ApiKey name="X-Api-Key"`},
		"missing token":   {Rule{Limit: perHour("x", 1), Key: ByAPIKey("Authorization")}, 401, "Bearer"},
		"own fault":       {rule(&KeyError{Status: 403, Detail: "No."}), 403, ""},
		"no status":       {rule(&KeyError{Detail: "No."}), 400, ""},
		"a bad status":    {rule(&KeyError{Status: 200, Detail: "No."}), 400, ""},
		"no fault":        {rule(broken), 500, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := mustMiddleware(t, redistest.Shared(t).Client(), MiddlewareConfig{Rules: []Rule{test.rule}, OnFailure: FailOpen, OnError: said.add}).Wrap(next)
			resp := get(h)
			problem(t, resp, test.status)
			if got := resp.Header.Get("WWW-Authenticate"); got != test.challenge {
				t.Errorf("WWW-Authenticate: %q; want %q", got, test.challenge)
			}
		})
	}
	if list := said.all(); len(list) != 1 || !errors.Is(list[0], broken) {
		t.Errorf("OnError was told %v; want the broken one alone", list)
	}
	if next.count() > 0 {
		t.Error("a request without a key got through")
	}
}

func TestSecretsStayOutOfRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	h := mustMiddleware(t, client, MiddlewareConfig{Rules: []Rule{
		{Limit: perHour("key", 1), Key: ByAPIKey("X-API-Key")}, {Limit: perHour("token", 1), Key: ByAPIKey("Authorization")},
	}}).Wrap(&ok{})
	const key, token = "sk-hush", "tok-hush"
	ask := func() *http.Response { return get(h, with("X-API-Key", key), with("Authorization", "Bearer "+token)) }
	mustOK(t, ask())
	resp := ask()
	body, _ := io.ReadAll(resp.Body)
	var seen strings.Builder
	seen.WriteString(string(body) + fmt.Sprint(resp.Header))
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) != 2 {
		t.Fatalf("keys %q, %v; want two", keys, err)
	}
	for _, k := range keys {
		seen.WriteString(k + client.Dump(t.Context(), k).Val())
	}
	if strings.Contains(seen.String(), "hush") {
		t.Errorf("a secret got out: %q", seen.String())
	}
}

func TestHostileKeys(t *testing.T) {
	t.Parallel()
	h := mustMiddleware(t, redistest.Shared(t).Client(), MiddlewareConfig{Rules: []Rule{{Limit: perHour("user", 1), Key: ByUser(userOf)}}}).Wrap(&ok{})
	long := strings.Repeat("x", 100_000)
	for _, user := range []string{long, long + "y", "a}:{b", "a:b", "*", "\x00", "user%3Aann", "user:ann", "ümläut"} {
		mustOK(t, get(h, with("User", user)))
		problem(t, get(h, with("User", user)), 429)
	}
}

func TestCost(t *testing.T) {
	t.Parallel()
	h := mustMiddleware(t, redistest.Shared(t).Client(), MiddlewareConfig{
		Rules: []Rule{{Limit: perHour("items", 10), Key: Everyone}},
		Cost: func(r *http.Request) int64 {
			n, _ := strconv.ParseInt(r.Header.Get("Items"), 10, 64)
			return n
		},
	}).Wrap(&ok{})
	left := func(items, want string) {
		t.Helper()
		resp := get(h, with("Items", items))
		mustOK(t, resp)
		if got := resp.Header.Get("X-RateLimit-Remaining"); got != want {
			t.Errorf("after %s: %s left; want %s", items, got, want)
		}
	}
	left("4", "6")
	left("0", "5")
	left("-7", "4")
	refused := get(h, with("Items", "5"))
	problem(t, refused, 429)
	if got := refused.Header.Get("X-RateLimit-Remaining"); got != "4" {
		t.Errorf("refused, with %s left; want 4", got)
	}
	never := get(h, with("Items", "11"))
	said := problem(t, never, 413)
	if never.Header.Get("Retry-After") != "" || said["type"] != "about:blank" || never.Header.Get("RateLimit-Policy") == "" {
		t.Errorf("what can never be admitted: %v %v", never.Header, said)
	}
	left("4", "0")
}

func TestRefuseHook(t *testing.T) {
	t.Parallel()
	var seen []*Refusal
	m := mustMiddleware(t, redistest.Shared(t).Client(), MiddlewareConfig{
		Rules: []Rule{{Limit: perHour("all", 1), Key: Everyone}},
		Refuse: func(w http.ResponseWriter, r *http.Request, f *Refusal) {
			seen = append(seen, f)
			if r.Header.Get("Accept") == "text/plain" {
				http.Error(w, "slow down", f.Status)
				return
			}
			f.ServeHTTP(w, r)
		},
	})
	h := m.Wrap(&ok{})
	mustOK(t, get(h))
	resp := get(h, with("Accept", "text/plain"))
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 429 || string(body) != "slow down\n" || resp.Header.Get("Retry-After") == "" || resp.Header.Get("RateLimit") == "" {
		t.Errorf("own answer: %d %v %q", resp.StatusCode, resp.Header, body)
	}
	problem(t, get(h), 429)
	if len(seen) != 2 || seen[0].Decision.Limit != "all" || seen[0].Decision.RetryAfter <= 0 || seen[0].Err != nil {
		t.Errorf("refusals %+v", seen)
	}
}

func TestPausedBucket(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client()
	name, limit := prefix(t), perHour("user", 5)
	var refusal *Refusal
	h := mustMiddleware(t, client, MiddlewareConfig{
		Prefix: name, Rules: []Rule{{Limit: limit, Key: ByUser(userOf)}},
		Refuse: func(w http.ResponseWriter, r *http.Request, f *Refusal) { refusal = f; f.ServeHTTP(w, r) },
	}).Wrap(&ok{})
	limiter, err := throttle.New(client, name, limit)
	if err != nil {
		t.Fatal(err)
	}
	if err := limiter.Pause(t.Context(), "user", "ann", time.Now().Add(time.Hour), "for operators only"); err != nil {
		t.Fatal(err)
	}
	said := problem(t, get(h, with("User", "ann")), 429)
	if refusal.Decision.Paused != "for operators only" || strings.Contains(fmt.Sprint(said), "operators") {
		t.Errorf("refusal %+v, told as %v", refusal, said)
	}
}

func TestMiddlewareConfig(t *testing.T) {
	client := redistest.Shared(t).Client()
	good := MiddlewareConfig{Rules: []Rule{{Limit: perHour("a", 1), Key: Everyone}}, OnFailure: FailOpen}
	if _, err := NewMiddleware(client, good); err != nil {
		t.Fatal(err)
	}
	leaky := throttle.Limit{Name: "leaky", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(1), Capacity: 5}
	tests := map[string]struct {
		change func(*MiddlewareConfig)
		want   []string
	}{
		"no failure":       {func(c *MiddlewareConfig) { c.OnFailure = 0 }, []string{"OnFailure", "FailOpen", "FailClosed"}},
		"unknown failure":  {func(c *MiddlewareConfig) { c.OnFailure = 7 }, []string{"OnFailure"}},
		"no rules":         {func(c *MiddlewareConfig) { c.Rules = nil }, []string{"Rules"}},
		"no key":           {func(c *MiddlewareConfig) { c.Rules = []Rule{{Limit: perHour("a", 1)}} }, []string{`rule 1 "a"`, "Key"}},
		"bad limit":        {func(c *MiddlewareConfig) { c.Rules[0].Limit.Rate = throttle.Rate{} }, []string{"rate"}},
		"name taken":       {func(c *MiddlewareConfig) { c.Rules = slices.Repeat(c.Rules, 2) }, []string{"taken"}},
		"too many":         {func(c *MiddlewareConfig) { c.Rules = slices.Repeat(c.Rules, 70) }, []string{"the maximum is 16"}},
		"negative timeout": {func(c *MiddlewareConfig) { c.Timeout = -1 }, []string{"Timeout"}},
		"prefix":           {func(c *MiddlewareConfig) { c.Prefix = "{x}" }, []string{"prefix"}},
		"leaky beside concurrency": {func(c *MiddlewareConfig) {
			c.Rules = []Rule{{Limit: leaky, Key: Everyone}, {Limit: atOnce("b", 1), Key: Everyone}}
		}, []string{`"leaky"`, "token bucket"}},
		"everything": {func(c *MiddlewareConfig) { *c = MiddlewareConfig{Timeout: -1} }, []string{"OnFailure", "Timeout", "Rules"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config := good
			config.Rules = slices.Clone(good.Rules)
			test.change(&config)
			_, err := NewMiddleware(client, config)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
	if _, err := NewMiddleware(nil, good); err == nil {
		t.Error("no error without a client")
	}
	good.Rules = []Rule{{Limit: leaky, Key: Everyone}}
	if _, err := NewMiddleware(client, good); err != nil {
		t.Errorf("a leaky bucket alone: %v", err)
	}
}

// TestResponseWriter holds that the handler gets the server's own writer.
func TestResponseWriter(t *testing.T) {
	t.Parallel()
	type writer struct{ http.ResponseWriter }
	var got http.ResponseWriter
	h := mustMiddleware(t, redistest.Shared(t).Client(), MiddlewareConfig{Rules: []Rule{{Limit: atOnce("a", 1), Key: Everyone}}}).
		Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { got = w }))
	w := writer{httptest.NewRecorder()}
	h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if got != w {
		t.Errorf("the handler got a %T", got)
	}
}
