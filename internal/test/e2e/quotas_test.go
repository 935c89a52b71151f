package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/pacer"
	"github.com/headgate/headgate/internal/test/stage"
)

// TestLimitFollowsHeaders: a provider changes what it admits, and says so in the headers of its answers. Two seconds
// later its limit is used, and of all calls hardly any is refused.
func TestLimitFollowsHeaders(t *testing.T) {
	const limits = "queues: {ai: {kinds: [ai], limits: [{name: requests, algorithm: leaky_bucket, rate: 100/s, adaptive: true}]}}\n"
	const jobs, own, burst = 1400, 100, 10
	pacer.Measure(t, func(t *testing.T, r *pacer.Run) {
		s := stage.New(t, limits)
		s.Run = r
		r.Here() // where the provider is
		admits := func(rate float64) sandbox.Limit { return sandbox.Limit{Rate: rate, Burst: burst} }
		provider, err := sandbox.NewAnthropic(sandbox.AIConfig{Config: sandbox.Config{Account: admits(80)}})
		if err != nil {
			s.T.Fatal(err)
		}
		s.T.Cleanup(func() { _ = provider.Close() })
		var lines strings.Builder
		for i := range jobs {
			fmt.Fprintf(&lines, `{"kind":"ai","tenant":"acme","key":"%d","payload":{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":10}}`+"\n", i)
		}
		s.Bulk(lines.String())
		s.Worker("HEADGATE_AI_PROVIDER=anthropic", "HEADGATE_AI_BASE_URL="+provider.URL(), "HEADGATE_AI_API_KEY=sk-test")
		s.Until(20*time.Second, "there are calls", func() bool { return len(provider.Calls()) > 0 })
		for _, rate := range []float64{80, 30, 90} {
			provider.SetAccountLimit(admits(rate))
			changed := time.Now()
			time.Sleep(6 * time.Second) // the provider's limit stays for that long
			var came, used []time.Time
			for _, call := range provider.Calls() {
				if call.At.After(changed.Add(2 * time.Second)) {
					came = append(came, call.At)
					if call.Accepted {
						used = append(used, call.At)
					}
				}
			}
			what := fmt.Sprintf("%.0f/s, two seconds after the provider has said it", rate)
			s.Run.Used(what, used, rate, 0.95)
			s.Run.Law(what, came, rate, burst)
		}
		calls, refused := provider.Calls(), 0
		s.Run.Law("the limit of the file", stage.Times(calls, stage.EveryCall), own, 1)
		for _, call := range calls {
			if call.Status == http.StatusTooManyRequests {
				refused++
			}
		}
		s.Run.Number("refused calls, in percent", calls[0].At, calls[len(calls)-1].At, 100*float64(refused)/float64(len(calls)), 1)
	})
}
