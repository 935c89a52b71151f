package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/internal/test/golden"
	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/stage"
)

// BenchmarkHostileConnections measures what connections of one key, or of nobody, cost others: how
// long the API takes to answer another key, and how much of a limit the worker behind the same
// address uses.
//
//	go test ./internal/test/e2e -run '^$' -bench HostileConnections -benchtime 1x -update
func BenchmarkHostileConnections(b *testing.B) {
	const rate = 100 // a second
	phase := 20 * time.Second
	if testing.Short() {
		phase = 4 * time.Second
	}
	for b.Loop() {
		var lines []string
		pacer.MeasureIn(b, func(r *pacer.Run) {
			s := stage.New(b, "queues: {webhook: {kinds: [webhook], limits: [{name: account, algorithm: leaky_bucket, rate: 100/s}]}}")
			keys := map[string]string{}
			var file strings.Builder
			file.WriteString("keys:\n")
			for _, id := range []string{"hostile", "other"} {
				key, hash := api.NewKey()
				keys[id] = key
				fmt.Fprintf(&file, "  - {id: %s, hash: %q, scopes: [enqueue, read], rate: 1000/s}\n", id, hash)
			}
			w := s.Worker("HEADGATE_API_KEYS_FILE=" + s.Write("keys.yaml", file.String()))
			s.Bulk(s.Jobs("acme", 6*rate*int((phase+settling)/time.Second), "")) // 5 phases, and some more
			s.Wait("acme", rate, 20*time.Second)
			s.Run = r
			s.Pace(s.Calls, "/calls")
			h := hostile{strings.TrimPrefix(w.HTTP, "http://"), keys["hostile"]}
			lines = nil
			alone := 1.0 // of the limit
			phases := []struct {
				name string
				acts []act
			}{
				{"none", nil},
				{"16 batches that trickle, a byte a second", []act{{16, h.trickle}}},
				{"100 that stay silent", []act{{100, h.silent}}},
				{"1,000 a second that open and close", []act{{1000, h.openAndClose}}},
				{"all of these", []act{{16, h.trickle}, {100, h.silent}, {1000, h.openAndClose}}},
			}
			if testing.Short() {
				phases = slices.Delete(phases, 1, len(phases)-1)
			}
			for _, p := range phases {
				f := beside(s, p.acts, w.HTTP, keys["other"], phase)
				f.use /= rate
				r.Number("requests that failed beside "+p.name, f.from, f.to, float64(f.failed), 0)
				r.Number("what was used less than alone, beside "+p.name, f.from, f.to, 1-f.use/alone, 0.01)
				if p.acts == nil {
					alone = f.use
				}
				lines = append(lines, fmt.Sprintf("| %s | %s | %s | %.3f |", p.name, f.median.Round(100*time.Microsecond), f.last.Round(100*time.Microsecond), f.use))
				b.Log(lines[len(lines)-1])
			}
		})
		if golden.Update() {
			golden.WritePart(b, "../../../docs/security.md", "connections", "| Connections of one key and of nobody | Half of another key's requests within | 99 % within | Use of a limit of 100/s |\n|---|---|---|---|\n"+strings.Join(lines, "\n")+"\n")
		}
	}
}

// figures is what others see in one phase.
type figures struct {
	median, last time.Duration // of the API's answers: the middle one and the 99th of a hundred
	failed       int
	use          float64 // calls a second
	from, to     time.Time
}

// act is something that n connections do until ctx is done.
type act struct {
	n  int
	do func(ctx context.Context)
}

// settling is until all connections of a phase are there.
const settling = 2 * time.Second

// beside measures others while connections act.
func beside(s *stage.Stage, acts []act, url, key string, length time.Duration) (f figures) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for _, a := range acts {
		for range a.n {
			all.Go(func() { a.do(ctx) })
		}
	}
	time.Sleep(settling)
	var took []time.Duration
	before := s.Received("/calls", "acme")
	f.from = time.Now()
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	for i := 0; time.Since(f.from) < length; i++ {
		<-ticks.C
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, url+api.Base+"/queues", nil)
		if i%2 == 0 {
			job := fmt.Sprintf(`{"kind":"webhook","tenant":"later","in":"24h","payload":{"url":"%s/"}}`, s.Calls)
			r, _ = http.NewRequestWithContext(ctx, http.MethodPost, url+api.Base+"/jobs", strings.NewReader(job))
			r.Header.Set("Content-Type", "application/json")
		}
		r.Header.Set("Authorization", "Bearer "+key)
		asked := time.Now()
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			f.failed++
			continue
		}
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		if took = append(took, time.Since(asked)); response.StatusCode/100 != 2 {
			f.failed++
		}
	}
	calls := s.Received("/calls", "acme") - before
	f.to = time.Now()
	f.use = float64(calls) / f.to.Sub(f.from).Seconds()
	slices.Sort(took)
	f.median, f.last = took[len(took)/2], took[len(took)*99/100]
	return f
}

// hostile is the address and the key with which connections act.
type hostile struct{ addr, key string }

// trickle sends a batch, a byte a second, and the next one when it is refused.
func (h hostile) trickle(ctx context.Context) {
	for ctx.Err() == nil {
		body, to := io.Pipe()
		r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+h.addr+api.Base+"/jobs/batch", body)
		r.Header.Set("Authorization", "Bearer "+h.key)
		r.Header.Set("Content-Type", "application/x-ndjson")
		done := make(chan struct{})
		go func() {
			defer close(done)
			response, err := http.DefaultClient.Do(r)
			if err == nil {
				response.Body.Close()
			}
		}()
		for open := true; open; {
			_, err := to.Write([]byte(" "))
			select {
			case <-done:
				open = false
			case <-ctx.Done():
				open = false
			case <-time.After(time.Second):
				open = err == nil
			}
		}
		to.CloseWithError(io.ErrUnexpectedEOF)
		<-done
	}
}

// silent connects and says nothing, and connects again when it is cut off.
func (h hostile) silent(ctx context.Context) {
	for ctx.Err() == nil {
		conn, err := net.Dial("tcp", h.addr)
		if err != nil {
			return
		}
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		_, _ = io.Copy(io.Discard, conn)
		stop()
		conn.Close()
	}
}

// openAndClose does so once a second.
func (h hostile) openAndClose(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
		if conn, err := net.Dial("tcp", h.addr); err == nil {
			conn.Close()
		}
	}
}
