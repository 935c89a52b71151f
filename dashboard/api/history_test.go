package api

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/queue"
)

// TestHistoryIsOfSeconds: a look between two seconds is no point of its own, nothing
// of it is lost, and seconds without a look are there.
func TestHistoryIsOfSeconds(t *testing.T) {
	var h history
	began := time.Now()
	for _, look := range []struct {
		after time.Duration
		calls int64
	}{{0, 100}, {time.Second, 120}, {1250 * time.Millisecond, 126}, {2 * time.Second, 140}, {5 * time.Second, 155}} {
		h.add(began.Add(look.after), []queue.Totals{{Queue: "q", Calls: look.calls}}, nil)
	}
	from, points := h.of("q")
	var sent []int64
	for _, p := range points {
		sent = append(sent, p.Sent)
	}
	if want := []int64{20, 20, 0, 0, 15}; !slices.Equal(sent, want) || !from.Equal(began) {
		t.Errorf("sent %v from %v on; want %v from %v on", sent, from, want, began)
	}
}
