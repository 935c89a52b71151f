package settings

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkHeld measures how late calls leave that were held for their slots, while
// the same process also works: 1,000 calls a second, each with 50 µs of its own, and
// bursts of 10 ms such as a scrape, a page or a batch of replies. The settings take
// turns of a quarter of a second, so that all of them meet the same machine.
//
//	go test -run '^$' -bench Held -benchtime 40x ./internal/settings
func BenchmarkHeld(b *testing.B) {
	given := runtime.GOMAXPROCS(0)
	for _, bursts := range []int{0, 1, given} {
		b.Run(fmt.Sprintf("bursts=%d", bursts), func(b *testing.B) {
			procs := slices.Compact(slices.Sorted(slices.Values([]int{given, given + 1, given + 2, max(8, given)})))
			late := map[int][]time.Duration{}
			defer runtime.GOMAXPROCS(given)
			defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
			for b.Loop() {
				for _, n := range procs {
					runtime.GOMAXPROCS(n)
					late[n] = append(late[n], held(250*time.Millisecond, bursts)...)
				}
			}
			for _, n := range procs {
				slices.Sort(late[n])
				missed, _ := slices.BinarySearch(late[n], 3*time.Millisecond)
				b.ReportMetric(100*(1-float64(missed)/float64(len(late[n]))), fmt.Sprintf("%%missed/procs=%d", n))
				b.ReportMetric(float64(late[n][len(late[n])*99/100].Microseconds()), fmt.Sprintf("p99-µs/procs=%d", n))
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// held returns how late each call of a turn left.
func held(turn time.Duration, bursts int) []time.Duration {
	const each = time.Millisecond
	late := make([]time.Duration, int(turn/each))
	over := make(chan struct{})
	var calls, others sync.WaitGroup
	for range bursts {
		others.Go(func() {
			for {
				spin(10 * time.Millisecond)
				select {
				case <-over:
					return
				case <-time.After(15 * time.Millisecond):
				}
			}
		})
	}
	began := time.Now()
	for i := range late {
		slot := began.Add(time.Duration(i+20) * each)
		calls.Go(func() {
			<-time.After(time.Until(slot))
			late[i] = time.Since(slot)
			spin(50 * time.Microsecond)
		})
	}
	calls.Wait()
	close(over)
	others.Wait()
	return late
}

var sink atomic.Pointer[[]byte]

// spin works for so long, and makes garbage as replies do.
func spin(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		garbage := make([]byte, 512)
		sink.Store(&garbage)
	}
}
