package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestShareOfAKey: a key that holds all the batches and streams that it can leaves room for others.
func TestShareOfAKey(t *testing.T) {
	t.Parallel()
	r, keys := keyed(t, redistest.Start(t), Key{ID: "greedy", Scopes: []Scope{Read, Enqueue}}, Key{ID: "other", Scopes: []Scope{Read, Enqueue}})
	r.api.chunkTime = time.Hour // the batches wait for the test, on a busy machine for longer than clients may
	job := r.job("acme", "") + "\n"
	var bodies []*io.PipeWriter
	answers := make(chan int, maxBatches)
	for range maxBatches / 2 { // they trickle
		from, to := io.Pipe()
		bodies = append(bodies, to)
		request, err := http.NewRequestWithContext(t.Context(), "POST", r.server.URL+Base+"/jobs/batch", from)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", ndjson)
		request.Header.Set("Authorization", "Bearer "+keys["greedy"])
		go func() {
			response, err := r.http.Do(request)
			if err != nil {
				t.Error(err)
				answers <- 0
				return
			}
			response.Body.Close()
			answers <- response.StatusCode
		}()
		if _, err := io.WriteString(to, job); err != nil {
			t.Fatal(err)
		}
	}
	r.key = keys["greedy"]
	inProgress := func() int {
		r.api.batches.mu.Lock()
		defer r.api.batches.mu.Unlock()
		return r.api.batches.keys["greedy"]
	}
	for deadline := time.Now().Add(time.Minute); inProgress() < maxBatches/2; time.Sleep(5 * time.Millisecond) { // the last ones are on their way
		if time.Now().After(deadline) {
			t.Fatal("the batches do not begin")
		}
	}
	if got := r.want(429, "its share", "POST", "/jobs/batch", job, "Content-Type", ndjson); got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	for range maxStreams / 2 {
		r.watch("")
	}
	r.want(429, "its share", "GET", "/events", "")
	r.key = keys["other"]
	r.want(202, `"accepted":1`, "POST", "/jobs/batch", job, "Content-Type", ndjson)
	r.watch("").next("overview")

	for _, body := range bodies {
		body.Close()
		if status := <-answers; status != 202 {
			t.Errorf("a batch that took its time: %d", status)
		}
	}
	r.key = keys["greedy"]
	r.want(202, "", "POST", "/jobs/batch", job, "Content-Type", ndjson)
}

// TestBodyTakesMemoryAsItComes: what a client says of its body's length takes no memory.
func TestBodyTakesMemoryAsItComes(t *testing.T) {
	const said = 1 << 20
	asked := httptest.NewRequest("POST", "/", strings.NewReader("{}"))
	asked.ContentLength = said
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	text, err := readBody(&request{Request: asked, w: httptest.NewRecorder()}, said)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > said/10 || err != nil || string(text) != "{}" {
		t.Errorf("%q, %v, and %d bytes of memory", text, err, took)
	}
}

// TestSlowAction: so it is with a change that may take minutes itself.
func TestSlowAction(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), nil)
	r.api.chunkTime = 200 * time.Millisecond
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s/queues/q/actions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", Base)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusRequestTimeout {
		t.Errorf("%s", response.Status)
	}
}

// TestSlowBody: a batch that stops coming ends, and says why.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), nil)
	r.api.chunkTime = 200 * time.Millisecond
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s/jobs/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: 1000\r\n\r\n%s\n{", Base, ndjson, r.job("acme", ""))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != 207 || !strings.Contains(string(text), `"accepted":1`) || !strings.Contains(string(text), `"code":"too_slow"`) {
		t.Errorf("%s %s, %v", response.Status, text, err)
	}
}
