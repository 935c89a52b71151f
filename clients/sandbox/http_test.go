package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/until"
)

func newHTTP(t testing.TB, config sandbox.Config) (*sandbox.HTTP, *http.Client) {
	t.Helper()
	h, err := sandbox.NewHTTP(config)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h, &http.Client{Transport: transport}
}

func post(ctx context.Context, client *http.Client, url string, call clients.Call) (status int, header http.Header, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{}`))
	if err != nil {
		return 0, nil, err
	}
	r.GetBody = nil // net/http would repeat a call whose connection was closed
	for name, value := range call.Headers() {
		r.Header.Set(name, value)
	}
	response, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, response.Header, err
}

func ExampleNewHTTP() {
	provider, err := sandbox.NewHTTP(sandbox.Config{Limit: sandbox.Limit{Rate: 1, Burst: 2}})
	if err != nil {
		panic(err)
	}
	defer provider.Close()
	for range 3 {
		r, err := http.Get(provider.URL())
		if err != nil {
			panic(err)
		}
		r.Body.Close()
		fmt.Printf("%d %q\n", r.StatusCode, r.Header.Get("Retry-After"))
	}
	http.DefaultClient.CloseIdleConnections()
	// Output:
	// 200 ""
	// 200 ""
	// 429 "1"
}

func TestHTTPRecords(t *testing.T) {
	h, client := newHTTP(t, sandbox.Config{Limit: sandbox.Limit{Rate: 0.5, Burst: 1}})
	before := time.Now()
	call := clients.Call{Job: "018f", Tenant: "Ünï ✉", Attempt: 3, IdempotencyKey: "key"}
	if status, _, err := post(t.Context(), client, h.URL()+"/any/path?x=1", call); err != nil || status != 200 {
		t.Fatal(status, err)
	}
	status, header, err := post(t.Context(), client, h.URL(), call)
	if err != nil || status != 429 || header.Get("Retry-After") != "2" {
		t.Fatal(status, header, err)
	}
	calls := h.Calls()
	if len(calls) != 2 {
		t.Fatalf("%d calls", len(calls))
	}
	for i, want := range []sandbox.Call{{Accepted: true, Status: 200}, {Status: 429}} {
		got := calls[i]
		if got.At.Before(before) || time.Now().Before(got.At) {
			t.Errorf("call %d came at %v", i, got.At)
		}
		want.At, want.Job, want.Tenant, want.Attempt, want.Key = got.At, call.Job, call.Tenant, "3", call.IdempotencyKey
		if got != want {
			t.Errorf("call %d is %+v; want %+v", i, got, want)
		}
	}
	if got := h.Stats()[call.Tenant]; got != (sandbox.Stats{Accepted: 1, Rejected: 1}) {
		t.Errorf("%+v", got)
	}
}

func TestHTTPFaults(t *testing.T) {
	h, client := newHTTP(t, sandbox.Config{})
	call := clients.Call{Tenant: "acme"}
	h.Fail(1, 503)
	if status, _, err := post(t.Context(), client, h.URL(), call); err != nil || status != 503 {
		t.Error(status, err)
	}
	h.Fail(1, 7) // no status at all
	if status, _, err := post(t.Context(), client, h.URL(), call); err != nil || status != 500 {
		t.Error(status, err)
	}
	h.Fail(1, sandbox.NoAnswer)
	if status, _, err := post(t.Context(), client, h.URL(), call); !errors.Is(err, io.EOF) {
		t.Error(status, err)
	}
	h.Slow(time.Millisecond)
	began := time.Now()
	if status, _, err := post(t.Context(), client, h.URL(), call); err != nil || status != 200 || time.Since(began) < time.Millisecond {
		t.Error(status, err, time.Since(began))
	}
	if got := h.Stats()["acme"]; got != (sandbox.Stats{Accepted: 1, Failed: 3}) {
		t.Errorf("%+v", got)
	}
}

func TestHTTPHang(t *testing.T) {
	h, client := newHTTP(t, sandbox.Config{})
	release := h.Hang()
	answered := make(chan int, 1)
	go func() {
		status, _, _ := post(t.Context(), client, h.URL(), clients.Call{Job: "patient"})
		answered <- status
	}()
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, _, err := post(ctx, client, h.URL(), clients.Call{Job: "impatient"})
		gone <- err
	}()
	until.Done(t, "two calls", func() bool { return len(h.Calls()) == 2 })
	for _, call := range h.Calls() {
		if call.Status != sandbox.NoAnswer {
			t.Errorf("%+v hangs and has a status", call)
		}
	}
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	release()
	release()
	if status := <-answered; status != 200 {
		t.Errorf("after the release: %d", status)
	}
	for _, call := range h.Calls() {
		if call.Job == "patient" && call.Status != 200 {
			t.Errorf("%+v was answered", call)
		}
	}
}

func TestHTTPCloseEndsWhatHangs(t *testing.T) {
	h, client := newHTTP(t, sandbox.Config{})
	h.Hang()
	h.Slow(time.Hour)
	gone := make(chan error, 1)
	go func() {
		_, _, err := post(t.Context(), client, h.URL(), clients.Call{})
		gone <- err
	}()
	until.Done(t, "a call", func() bool { return len(h.Calls()) == 1 })
	h.Close()
	if err := <-gone; err == nil {
		t.Error("it was answered")
	}
}

func TestHTTPAnswer(t *testing.T) {
	h, client := newHTTP(t, sandbox.Config{Answer: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s", r.URL.Path, body)
	})})
	response, err := client.Post(h.URL()+"/v1/messages", "application/json", strings.NewReader(`{"model":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); string(body) != `/v1/messages {"model":"m"}` {
		t.Errorf("%s", body)
	}
	response, err = client.Post(h.URL(), "text/plain", io.LimitReader(zeros{}, 9<<20))
	if err == nil {
		response.Body.Close()
		if response.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("a body without end: %d", response.StatusCode)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Connections that never say anything, or nothing that makes sense, must not
// keep Close waiting.
func TestHTTPHostileConnections(t *testing.T) {
	h, _ := newHTTP(t, sandbox.Config{})
	for _, text := range []string{"", "\r\n\r\n", "GET", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(h.URL(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, text)
	}
	until.Done(t, "a call", func() bool { return len(h.Calls()) == 1 }) // the last one's headers are fine
	h.Close()
}

// What the server admits under load must keep to the law that it polices.
func TestHTTPPolicesUnderLoad(t *testing.T) {
	limit, account := sandbox.Limit{Rate: 200, Burst: 10}, sandbox.Limit{Rate: 300, Burst: 15}
	h, client := newHTTP(t, sandbox.Config{Limit: limit, Account: account})
	var senders sync.WaitGroup
	for i := range 16 {
		senders.Go(func() {
			for range 60 {
				if _, _, err := post(t.Context(), client, h.URL(), clients.Call{Tenant: fmt.Sprint(i % 2)}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	senders.Wait()
	var admitted []sandbox.Call
	for _, call := range h.Calls() {
		if call.Accepted {
			admitted = append(admitted, call)
		}
	}
	const slack = 1e-3
	if got, most := sandbox.Excess(admitted, account), account.Rate*0.005; got > most+slack || got < 0 {
		t.Errorf("the account's excess is %v; up to %v is tolerated, and this load must reach it", got, most)
	}
	for _, tenant := range []string{"0", "1"} {
		if got, most := sandbox.Excess(sandbox.OfTenant(admitted, tenant), limit), limit.Rate*0.005; got > most+slack {
			t.Errorf("tenant %s: excess %v; up to %v is tolerated", tenant, got, most)
		}
	}
}

func BenchmarkHTTP(b *testing.B) {
	h, client := newHTTP(b, sandbox.Config{Limit: sandbox.Limit{Rate: 1e6, Burst: 1000}})
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, _, err := post(b.Context(), client, h.URL(), clients.Call{Job: "018f", Tenant: "acme", Attempt: 1}); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
