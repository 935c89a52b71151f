package api

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/throttle"
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

// BenchmarkEnqueueHTTP enqueues over HTTP, with a key and all request limits, and
// with the Go client in turn. What it reports is how much of the client's throughput
// is left: http/client.
func BenchmarkEnqueueHTTP(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // as our programs do
	run := func(name string, jobs, each, callers int, path, kind string) {
		b.Run(name, func(b *testing.B) {
			server := redistest.Start(b)
			key, hash := NewKey()
			keys := NewKeys([]Key{{ID: "bench", Hash: hash, Scopes: []Scope{Enqueue}}})
			r := newRig(b, server, func(c *Config) {
				c.Keys = func() *Keys { return keys }
				// They are asked each time, and never refuse.
				c.Requests = RequestLimits{PerKey: throttle.PerSecond(1_000_000), PerIP: throttle.PerSecond(1_000_000), PerRoute: throttle.PerSecond(1_000_000)}
			})
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
			conns := make(chan *wire, callers)
			for range callers {
				conns <- dial(b, r.server.Listener.Addr().String())
			}
			var ours, theirs, ratios []float64
			for b.Loop() {
				const rounds = 10 // of which the middle one counts: the machine has other things to do
				for range rounds {
					went := inParallel(b, callers, jobs/each/rounds, func(i int) error {
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
					http := inParallel(b, callers, jobs/each/rounds, func(i int) error {
						c := <-conns
						defer func() { conns <- c }()
						return c.post(Base+path, kind, key, text(i))
					})
					ours, theirs, ratios = append(ours, http*float64(each)), append(theirs, went*float64(each)), append(ratios, http/went)
				}
			}
			middle := func(all []float64) float64 {
				slices.Sort(all)
				return all[len(all)/2]
			}
			b.ReportMetric(middle(ours), "http-jobs/s")
			b.ReportMetric(middle(theirs), "client-jobs/s")
			b.ReportMetric(middle(ratios), "http/client")
		})
	}
	singles, batched, each := 80_000, 400_000, 5000
	if testing.Short() {
		singles, batched, each = 1000, 5000, 100
	}
	run("single", singles, 1, benchCallers, "/jobs", "application/json")
	run("batch", batched, each, 4, "/jobs/batch", "application/x-ndjson")
}

// wire is an HTTP client that costs next to nothing: net/http's would take as much of
// this machine as the server does, and callers have machines of their own.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
}

func dial(b *testing.B, addr string) *wire {
	b.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return &wire{conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}
}

func (w *wire) post(path, kind, key, body string) error {
	w.out = fmt.Appendf(w.out[:0], "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		path, kind, key, len(body), body)
	if _, err := w.conn.Write(w.out); err != nil {
		return err
	}
	status, length := "", 0
	for {
		line, err := w.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if status == "" {
			status = string(line)
		}
		if rest, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(rest))); err != nil {
				return err
			}
		}
		if len(line) == 2 {
			break
		}
	}
	if _, err := w.in.Discard(length); err != nil {
		return err
	}
	if !strings.HasPrefix(status, "HTTP/1.1 202") {
		return errors.New(status)
	}
	return nil
}
