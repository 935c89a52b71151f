package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/stage"
)

// ill is a receiver of webhooks that notes each call and answers as it is told.
type ill struct {
	*httptest.Server
	mu    sync.Mutex
	calls []time.Time
}

func newIll(t testing.TB, answer http.HandlerFunc) *ill {
	r := &ill{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		now := time.Now()
		r.mu.Lock()
		r.calls = append(r.calls, now)
		r.mu.Unlock()
		answer(w, request)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *ill) arrived() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

func webhooks(tenant, url string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"kind":"webhook","tenant":%q,"payload":{"url":"%s/","body":{"n":%d}}}`+"\n", tenant, url, i)
	}
	return b.String()
}

// perEndpoint is a limits file with one limit for each endpoint of each tenant.
const perEndpoint = `
queues:
  webhook:
    kinds: [webhook]
    limits:
      - {name: endpoint, per: [tenant, endpoint], algorithm: token_bucket, rate: 50/s}
`

// TestIllEndpoints: of three endpoints of a tenant one asks to be left alone for a day
// and one does not answer. The third keeps its rate, and so does another tenant. Two
// workers ask the one that does not answer once a pause, all together.
func TestIllEndpoints(t *testing.T) {
	t.Parallel()
	const jobs, rate, pause = 400, 50, 2 * time.Second
	stage.Measured(t, perEndpoint, func(s *stage.Stage) {
		busy := newIll(s.T, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "86400")
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		over := make(chan struct{})
		mute := newIll(s.T, func(_ http.ResponseWriter, request *http.Request) {
			select {
			case <-over:
			case <-request.Context().Done():
			}
		})
		s.T.Cleanup(func() { close(over) })
		env := []string{"HEADGATE_WEBHOOK_TIMEOUT=300ms", fmt.Sprintf("HEADGATE_BREAKER_PAUSE=%v", pause)}
		s.Worker(env...)
		s.Worker(env...)
		s.Bulk(webhooks("acme", busy.URL, 100) + webhooks("acme", mute.URL, 100) + webhooks("acme", s.Calls, jobs) + webhooks("globex", s.Calls, jobs))
		s.Wait("", 2*jobs, 30*time.Second)

		for _, tenant := range []string{"acme", "globex"} {
			at := stage.Times(s.Log(), stage.OfTenant(tenant))
			s.Run.Used(tenant, at, rate, 0.99)
			s.Run.Law(tenant, at, rate, 1)
		}
		// What was in workers' hands when it said so may still have gone.
		asked := busy.arrived()
		if late := slices.DeleteFunc(asked, func(at time.Time) bool { return at.Sub(asked[0]) < time.Second }); len(late) > 0 {
			s.T.Errorf("%d calls came later than a second after it asked for a day", len(late))
		}
		// The calls of the first pause and before it are those of five failures in a row
		// and of what was under way with them.
		tries := slices.DeleteFunc(mute.arrived(), func(at time.Time) bool { return at.Sub(mute.arrived()[0]) < pause })
		s.T.Logf("calls of the busy one: %d, of the mute one %d, after its first pause %d", len(asked), len(mute.arrived()), len(tries))
		if len(tries) == 0 {
			s.T.Error("nobody tried the mute receiver again")
		}
		for i := 1; i < len(tries); i++ {
			if gap := tries[i].Sub(tries[i-1]); gap < pause {
				s.T.Errorf("two workers tried the mute receiver within %v of each other; the pause is %v", gap, pause)
			}
		}
	})
}
