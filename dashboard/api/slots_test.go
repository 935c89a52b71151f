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
	"github.com/headgate/headgate/internal/test/until"
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
	until.Done(t, "the batches begin", func() bool { return inProgress() >= maxBatches/2 }) // the last ones are on their way
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

// TestShareOfActions: a key whose actions on many jobs take long leaves room for those of others.
func TestShareOfActions(t *testing.T) {
	r, keys := keyed(t, redistest.Shared(t), Key{ID: "greedy", Scopes: []Scope{Operate}}, Key{ID: "other", Scopes: []Scope{Operate}})
	var release func()
	for range maxActions / 2 {
		var err error
		if release, err = r.api.actions.take(caller{key: Key{ID: "greedy"}}); err != nil {
			t.Fatal(err)
		}
	}
	at, count := "/queues/"+r.queue+"/actions", `{"verb":"cancel","dry_run":true}`
	r.key = keys["greedy"]
	if got := r.want(429, "4 actions of this key are in progress, which is its share", "POST", at, count); got.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	r.want(429, "its share", "POST", at, `{"verb":"cancel","reason":"x"}`)
	r.want(400, "reason", "POST", at, `{"verb":"cancel"}`)
	r.key = keys["other"]
	for range maxActions { // each gives its slot back
		r.want(200, "", "POST", at, count)
	}
	release()
	r.key = keys["greedy"]
	r.want(200, "", "POST", at, `{"verb":"cancel","reason":"x"}`)
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

// TestSlowBody: a batch that stops coming ends, and says why, and so does a change that may take minutes itself.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), nil)
	r.api.chunkTime = 200 * time.Millisecond
	for _, test := range []struct {
		path, media, begin string
		status             int
		wants              []string
	}{
		{"/jobs/batch", ndjson, r.job("acme", "") + "\n{", 207, []string{`"accepted":1`, `"code":"too_slow"`}},
		{"/queues/q/actions", "application/json", "{", 408, []string{`"code":"too_slow"`}},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.server.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST %s%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: 1000\r\n\r\n%s", Base, test.path, test.media, test.begin)
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != test.status {
			t.Errorf("%s: %s %s, %v", test.path, response.Status, text, err)
		}
		for _, want := range test.wants {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: %s lacks %s", test.path, text, want)
			}
		}
	}
}

// TestAnswerThatIsNotRead: a batch whose client does not read the answer ends, and gives its slot back.
func TestAnswerThatIsNotRead(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), nil)
	r.api.writeTime = 200 * time.Millisecond
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := strings.Repeat("{}\n", maxLines) // its answer is longer than what the system buffers for a client
	if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "POST %s/jobs/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", Base, ndjson, len(body), body); err != nil {
		t.Fatal(err)
	}
	slots := func() int {
		r.api.batches.mu.Lock()
		defer r.api.batches.mu.Unlock()
		return r.api.batches.taken
	}
	until.Done(t, "the batch begins", func() bool { return slots() == 1 })
	until.Done(t, "the batch ends", func() bool { return slots() == 0 })
}
