package api

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/queue"
)

const benchCallers = 64

// inParallel does something so often, by as many callers as the benchmark has, and
// says how often a second.
func inParallel(b *testing.B, callers, times int, do func(i int) error) float64 {
	b.Helper()
	var next atomic.Int64
	var failed atomic.Value
	began := time.Now()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := int(next.Add(1)); i <= times; i = int(next.Add(1)) {
				if err := do(i); err != nil {
					failed.Store(err)
					return
				}
			}
		})
	}
	all.Wait()
	if err, ok := failed.Load().(error); ok {
		b.Fatal(err)
	}
	return float64(times) / time.Since(began).Seconds()
}

// BenchmarkEnqueueHTTP enqueues over HTTP and with the Go client in turn. What it
// reports is how much of the client's throughput is left: http/client.
func BenchmarkEnqueueHTTP(b *testing.B) {
	run := func(name string, jobs, each, callers int, overHTTP func(r *rig, text string) error) {
		b.Run(name, func(b *testing.B) {
			server := redistest.Start(b)
			key, hash := NewKey()
			keys := NewKeys([]Key{{ID: "bench", Hash: hash, Scopes: []Scope{Enqueue}}})
			r := newRig(b, server, func(c *Config) { c.Keys = func() *Keys { return keys } })
			r.key = key
			client := queue.NewClient(r.redis)
			job := func(i, n int) queue.Job {
				return queue.Job{Kind: "call", Queue: r.queue, Tenant: fmt.Sprintf("tenant-%d", i%50), Payload: fmt.Appendf(nil, `{"n":%d,"text":"of some length, as payloads are"}`, n)}
			}
			text := func(i int) string {
				var all strings.Builder
				for n := range each {
					fmt.Fprintf(&all, `{"kind":"call","queue":%q,"tenant":"tenant-%d","payload":{"n":%d,"text":"of some length, as payloads are"}}`+"\n", r.queue, (i*each+n)%50, n)
				}
				return all.String()
			}
			var ours, theirs float64
			for b.Loop() {
				const rounds = 4
				for range rounds {
					theirs += inParallel(b, callers, jobs/each/rounds, func(i int) error {
						batch := make([]queue.Job, each)
						for n := range batch {
							batch[n] = job(i*each+n, n)
						}
						for _, result := range client.EnqueueMany(b.Context(), batch) {
							if result.Err != nil {
								return result.Err
							}
						}
						return nil
					})
					ours += inParallel(b, callers, jobs/each/rounds, func(i int) error { return overHTTP(r, text(i)) })
				}
				ours, theirs = ours*float64(each)/rounds, theirs*float64(each)/rounds
			}
			b.ReportMetric(ours, "http-jobs/s")
			b.ReportMetric(theirs, "client-jobs/s")
			b.ReportMetric(ours/theirs, "http/client")
		})
	}
	post := func(r *rig, path, kind, text string) error {
		request, err := http.NewRequest(http.MethodPost, r.server.URL+Base+path, strings.NewReader(text))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", kind)
		request.Header.Set("Authorization", "Bearer "+r.key)
		response, err := r.http.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusAccepted {
			said, _ := io.ReadAll(response.Body)
			return fmt.Errorf("status %d: %s", response.StatusCode, said)
		}
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
	run("single", 40_000, 1, benchCallers, func(r *rig, text string) error { return post(r, "/jobs", "application/json", text) })
	run("batch", 200_000, 5000, 4, func(r *rig, text string) error { return post(r, "/jobs/batch", "application/x-ndjson", text) })
}
