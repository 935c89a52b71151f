package queue

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestLineGoesInOrder: of those in a line one goes at a time, in the order in which they came.
func TestLineGoesInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l lines
		var mu sync.Mutex
		var order []int
		went := func() []int {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(order)
		}
		leave := l.enter(t.Context(), "line")
		for i := range 3 {
			go func() {
				leave := l.enter(t.Context(), "line")
				defer leave()
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(time.Second) // of the bubble
			}()
			if got := went(); len(got) != 0 { // it waits, so they come in this order
				t.Errorf("%v went before the first one left", got)
			}
		}
		leave()
		for n := range 3 {
			if got, want := went(), []int{0, 1, 2}[:n+1]; !slices.Equal(got, want) {
				t.Errorf("after %d s %v went, want %v", n, got, want)
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if len(l.all) != 0 {
			t.Errorf("%d lines are kept", len(l.all))
		}
	})
}
