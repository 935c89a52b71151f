package browsertest

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

// BenchmarkPage: 100,000 tenants, of which 1,000 jobs a second go out, and one page
// that shows them. It tells how soon something is seen, and what part of one core
// the worker needs more while the page is open than before.
func BenchmarkPage(b *testing.B) {
	tenants, length := many, 10*time.Second
	if testing.Short() {
		tenants, length = 1000, time.Second
	}
	s := newStage(b, benchLimits)
	p := s.worker()
	s.tenants(tenants)
	for b.Loop() {
		before := p.share(b, length)
		var with float64
		var paint struct{ FirstPaint, Contentful, Rows float64 }
		results, said, err := run{
			base: p.page, given: map[string]any{"queue": "webhook"},
			control: control{"measure": asked(func(of struct{ FirstPaint, Contentful, Rows float64 }) (any, error) {
				paint, with = of, p.share(b, length)
				return true, nil
			})},
		}.node(b, "bench.mjs")
		if err != nil || len(results) != 1 {
			b.Fatalf("%v\n%v\n%s", err, results, said)
		}
		closed := (before + p.share(b, length)) / 2 // what else runs here comes and goes
		b.ReportMetric(paint.FirstPaint, "first-paint-ms")
		b.ReportMetric(paint.Contentful, "first-contentful-paint-ms")
		b.ReportMetric(paint.Rows, "rows-ms")
		if p.measured() {
			b.ReportMetric(closed, "worker-core-share-closed")
			b.ReportMetric(with-closed, "worker-core-share-page")
		}
	}
}

const benchLimits = `
queues:
  webhook:
    kinds: [webhook]
    limits:
      - {name: account, algorithm: leaky_bucket, rate: 1000/s}
      - {name: tenant, per: [tenant], algorithm: token_bucket, rate: 1/min, burst: 1}
`

// share is the part of one core that the process has over some time.
func (p *process) share(t testing.TB, length time.Duration) float64 {
	t.Helper()
	if !p.measured() {
		return 0
	}
	before, begin := p.cpu(t), time.Now()
	time.Sleep(length)
	return (p.cpu(t) - before).Seconds() / time.Since(begin).Seconds()
}

func (p *process) stat() string { return fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid) }

// measured tells whether this system says what a process uses.
func (p *process) measured() bool {
	_, err := os.Stat(p.stat())
	return err == nil
}

// cpu is what the process has used so far, for itself and in the kernel.
func (p *process) cpu(t testing.TB) time.Duration {
	t.Helper()
	text, err := os.ReadFile(p.stat())
	if err != nil {
		t.Fatal(err)
	}
	// The name, in brackets, may have anything in it.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const user, system = 11, 12
	var sum time.Duration
	for _, i := range []int{user, system} {
		n, err := strconv.ParseInt(string(fields[i]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(n) * time.Second / 100 // whatever the kernel counts by itself
	}
	return sum
}
