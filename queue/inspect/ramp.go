package inspect

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/limits"
)

// RampState is how far a limit with a ramp has grown for a bucket.
type RampState struct {
	Rate     string    // in force now, such as 61/day
	From, To string    // the rates at its beginning and at its end
	Since    time.Time // when it began to grow, later by as long as it was held back; zero: no call was made yet
	Until    time.Time // when it will have grown, if it is not held back; zero: no call was made yet
	Rejected float64   // the part of the latest calls that were rejected, 0 to 1
	Held     bool      // it does not grow, because too many calls are rejected
}

// ramp is what is known of a bucket that grows, as in formats.lua.
type ramp struct{ start, counted, calls, rejected int64 }

// held reports whether the bucket does not grow.
func (r ramp) held(growing limits.Ramp) bool {
	const tell = 18_000
	return r.calls >= tell && float64(r.rejected) > cmp.Or(growing.HoldAbove, limits.DefaultHoldAbove)*float64(r.calls)
}

// begins returns from when the bucket grows, as in lanes.lua.
func (r ramp) begins(growing limits.Ramp, now int64) int64 {
	if r.held(growing) {
		return r.start + max(0, now-r.counted)
	}
	return r.start
}

// grows returns the ramp of a limit, and what is known of the lane's bucket. growing is nil if the limit has none
// for the lane; known is false if the bucket has made no call.
func (f *forecast) grows(i int, l *lane) (growing *limits.Ramp, r ramp, known bool) {
	limit := f.rules.Limits[i]
	if limit.Ramp == nil || i >= len(l.buckets) || l.buckets[i] < 0 {
		return nil, r, false
	}
	if _, changed := f.limits.Override(limit.Name, l.Tenant); changed {
		return nil, r, false
	}
	_, err := fmt.Sscan(f.beside[f.keyBeside(ofRamp, f.buckets[l.buckets[i]])], &r.start, &r.counted, &r.calls, &r.rejected)
	return limit.Ramp, r, err == nil
}

// spec returns a limit as it is for a lane now: with a ramp, as far as it has grown, as in lanes.lua.
func (f *forecast) spec(i int, l *lane) limitlua.Spec {
	spec := f.limits.Spec(i, l.Tenant)
	growing, r, known := f.grows(i, l)
	if growing == nil {
		return spec
	}
	now, period, age := f.now.UnixMicro(), growing.Period().Microseconds(), int64(0)
	at := now
	if spec.Algorithm == "fw" {
		at = f.windowOf(i, spec, now) + period/2 // windows of a calendar are not all of the same length
	}
	if known {
		age = max(0, at-r.begins(*growing, now))
	}
	if age -= age % period; age >= growing.Over.Microseconds() {
		return spec
	}
	most := growing.At(time.Duration(age)*time.Microsecond, f.rules.Limits[i].Rate.Count)
	switch spec.Algorithm {
	case "fw", "sc", "sl":
		if spec.Window > 0 {
			most = int64(math.Floor(float64(most) * float64(spec.Window) / float64(period)))
		}
		spec.Burst = max(1, min(spec.Burst, most))
		return spec
	}
	part := float64(most) * float64(spec.Permit) / (float64(period) * float64(spec.Flow))
	if part >= 1 {
		return spec
	}
	spec.Permit, spec.Flow = limitlua.Units(most, growing.Period())
	if spec.Algorithm == "tb" {
		spec.Burst = max(1, int64(math.Floor(float64(spec.Burst)*part)))
	}
	return spec
}

// windowOf returns the start of a fixed window.
func (f *forecast) windowOf(i int, spec limitlua.Spec, now int64) int64 {
	if spec.Window > 0 {
		return now - now%spec.Window
	}
	start := now
	for _, opens := range f.calendars[i] {
		if opens <= now {
			start = opens
		}
	}
	return start
}

// rampState returns how far a limit has grown for a lane; nil if it has no ramp there.
func (f *forecast) rampState(i int, l *lane) *RampState {
	growing, r, known := f.grows(i, l)
	if growing == nil {
		return nil
	}
	own := f.rules.Limits[i].Rate.String()
	s := &RampState{Rate: effective.RateOf(f.spec(i, l), own), From: growing.From.String(), To: own}
	if known {
		begins := time.UnixMicro(r.begins(*growing, f.now.UnixMicro()))
		s.Since, s.Until = begins, begins.Add(growing.Over)
		s.Held = r.held(*growing) && s.Until.After(f.now)
		s.Rejected = float64(r.rejected) / float64(max(r.calls, 1))
	}
	return s
}
