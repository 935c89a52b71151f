package api

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue/inspect"
)

const ndjson = "application/x-ndjson"

func TestBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), nil)
	var all strings.Builder
	for i := range 1203 {
		all.WriteString(r.job("acme", fmt.Sprintf(`,"key":"k%d"`, i)) + "\n")
	}
	got := r.want(202, `"accepted":1203`, "POST", "/jobs/batch", all.String(), "Content-Type", ndjson)
	if results := got.get(t, "results").([]any); len(results) != 1203 || results[1202].(map[string]any)["index"] != 1202.0 {
		t.Errorf("%d results", len(results))
	}
	r.want(202, `"existing":1203`, "POST", "/jobs/batch", all.String(), "Content-Type", ndjson)

	// Each line has its own fate, in the order of the lines.
	mixed := strings.Join([]string{
		r.job("acme", `,"key":"k0"`), "", "not json", r.job("acme", `,"deadlin":"x"`), r.job("", ""), r.job("acme", ""),
		strings.Replace(r.job("acme", `,"key":"k1"`), `"n":1`, `"n":2`, 1), strings.Repeat(" ", 3<<20),
	}, "\n")
	got = r.want(207, "", "POST", "/jobs/batch", mixed, "Content-Type", ndjson)
	var codes []string
	for _, result := range got.get(t, "results").([]any) {
		result := result.(map[string]any)
		code := "new"
		if e, ok := result["error"].(map[string]any); ok {
			code = fmt.Sprint(e["code"])
			fields, _ := e["errors"].([]any)
			for _, field := range fields {
				code += fmt.Sprint(" ", field.(map[string]any)["field"])
			}
		} else if result["existing"] == true {
			code = "existing"
		}
		codes = append(codes, code)
	}
	if want := "existing,invalid,invalid deadlin,invalid tenant,new,conflict,invalid"; strings.Join(codes, ",") != want {
		t.Errorf("results %s\nwant %s", strings.Join(codes, ","), want)
	}
	if got.get(t, "accepted") != 1.0 || got.get(t, "existing") != 1.0 || got.get(t, "refused") != 5.0 {
		t.Errorf("%.300s", got.body)
	}

	// With a key of the request it can be sent again; jobs keep keys of their own.
	keyed := r.job("acme", "") + "\n" + r.job("acme", "") + "\n" + r.job("acme", `,"key":"k2"`)
	for _, want := range []string{`"accepted":2,"existing":1`, `"accepted":0,"existing":3`} {
		got := r.want(202, want, "POST", "/jobs/batch", keyed, "Content-Type", ndjson, "Idempotency-Key", "import-7")
		if id := got.get(t, "results").([]any)[1].(map[string]any)["id"]; id != "acme:import-7.1" {
			t.Errorf("id %v", id)
		}
	}
	for _, key := range []string{"", strings.Repeat("k", 251), "a\tb"} {
		r.want(400, `"field":"Idempotency-Key"`, "POST", "/jobs/batch", keyed, "Content-Type", ndjson, "Idempotency-Key", key)
	}

	r.want(202, `"accepted":2`, "POST", "/jobs/batch", `{"jobs":[`+r.job("acme", "")+`,`+r.job("acme", "")+`]}`)
	for body, want := range map[string]string{
		`{"jobs":[]}`:                           "no job",
		`{"job":[{}]}`:                          "an object such as",
		`[` + r.job("a", "") + `]`:              "an object such as",
		`{"jobs":[` + r.job("acme", ""):         "before the JSON is complete",
		`{"jobs":[` + r.job("a", "") + `}`:      "not JSON",
		`{"jobs":[` + r.job("", "") + `,oops]}`: "not JSON",
		``:                                      "",
	} {
		if got := r.do("POST", "/jobs/batch", body, "Content-Type", "application/json"); got.status != 400 && got.status != 207 || !strings.Contains(got.body, want) {
			t.Errorf("%s: %d %s; want %q", body, got.status, got.body, want)
		}
	}
	// What came before a mistake of the array was done, and is told.
	if got := r.do("POST", "/jobs/batch", `{"jobs":[`+r.job("acme", "")+`],"more":1}`); got.status != 207 || got.get(t, "stopped.code") != "invalid" || got.get(t, "accepted") != 1.0 {
		t.Errorf("%d %s", got.status, got.body)
	}
	r.want(413, "too_large", "POST", "/jobs/batch", `{"jobs":["`+strings.Repeat("x", maxArrayBytes)+`"]}`)
	r.want(400, "no job", "POST", "/jobs/batch", "\n\n", "Content-Type", ndjson)
	r.want(415, "x-ndjson or application/json", "POST", "/jobs/batch", "x", "Content-Type", "text/csv")
}

// A batch is enqueued while it comes: what was sent is in the queue before its end.
func TestBatchWhileItComes(t *testing.T) {
	r := newRig(t, redistest.Shared(t), nil)
	from, to := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), "POST", r.server.URL+Base+"/jobs/batch", from)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", ndjson)
	ended := make(chan error, 1)
	go func() {
		response, err := r.http.Do(request)
		if err == nil {
			defer response.Body.Close()
			if response.StatusCode != 202 {
				err = errors.New(response.Status)
			}
		}
		ended <- err
	}()
	w := bufio.NewWriter(to)
	for range 2 * chunkLines {
		fmt.Fprintln(w, r.job("acme", ""))
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	until.Done(t, "some jobs are enqueued before the end", func() bool {
		totals, err := inspect.New(r.redis).Totals(t.Context(), r.queue)
		return err != nil || totals.Waiting >= chunkLines
	})
	to.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestBatchOfSingleTenants(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r, keys := keyed(t, server, Key{ID: "acme", Scopes: []Scope{Enqueue}, Tenants: []string{"acme"}})
	r.key = keys["acme"]
	got := r.want(207, `"accepted":1`, "POST", "/jobs/batch", r.job("acme", "")+"\n"+r.job("globex", "")+"\n"+r.job("globex", ""), "Content-Type", ndjson)
	if got.get(t, "refused") != 2.0 || !strings.Contains(got.body, `"code":"forbidden"`) {
		t.Errorf("%s", got.body)
	}
	var n int64
	for deadline := time.Now().Add(time.Minute); n == 0 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		n = server.Client().LLen(t.Context(), refusedKey).Val()
	}
	if n != 1 {
		t.Errorf("%d refusals are noted; want one for the batch", n)
	}
}

// A batch that Redis ends in the middle says how far it came.
func TestBatchWithoutRedis(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	r := newRig(t, server, nil)
	server.Kill()
	got := r.do("POST", "/jobs/batch", r.job("acme", "")+"\n", "Content-Type", ndjson)
	if got.status != 503 && got.status != 504 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// However many batches come, few are read at once.
func TestMostBatches(t *testing.T) {
	r := newRig(t, redistest.Shared(t), nil)
	for range maxBatches {
		if _, err := r.api.batches.take(caller{key: Key{ID: localActor}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.want(429, "busy", "POST", "/jobs/batch", r.job("acme", ""), "Content-Type", ndjson); got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}
