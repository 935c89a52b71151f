package api

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestForecastsAreFew: forecasts take a tenth of the time at most, whatever they cost.
func TestForecastsAreFew(t *testing.T) {
	x, now, spent := &expectations{}, time.Unix(1e9, 0), time.Duration(0)
	for range 1000 { // jobs that come every 10 ms, and whose forecasts take 40 ms
		if x.affordable(now) {
			x.spent += 40 * time.Millisecond
			spent += 40 * time.Millisecond
		}
		now = now.Add(10 * time.Millisecond)
	}
	// The last forecast of each second may go beyond the tenth.
	if spent < time.Second || spent > 1200*time.Millisecond {
		t.Errorf("%v were spent in 10 s", spent)
	}
}

// TestLongForecast: a job is accepted even if its forecast takes too long.
func TestLongForecast(t *testing.T) {
	r := newRig(t, redistest.Shared(t), nil)
	r.want(202, `"position":0`, "POST", "/jobs", r.job("acme", ""))
	r.api.expect.most = time.Nanosecond
	if got := r.want(202, `"existing":false`, "POST", "/jobs", r.job("globex", "")); got.get(t, "position") != nil {
		t.Errorf("a forecast after a nanosecond: %s", got.body)
	}
}
