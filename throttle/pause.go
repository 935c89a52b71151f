package throttle

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/headgate/headgate/internal/limitlua"
)

//go:embed pause.lua
var pauseLua string

var pauseScript = limitlua.NewScript(pauseLua).AllowOOM()

// maxReason bounds what a pause keeps of its reason, in bytes.
const maxReason = 200

// Pause lets the bucket of a limit and a key admit nothing before until, by
// every process, and survives restarts of all of them. Of several pauses the
// longest holds. After it a bucket starts with one permit and its rate, not with
// a full burst; windows and their counts are as they were.
//
// until is a moment of this process's clock; what is sent is the time until
// then, so the clocks need not agree. One in the past does nothing. The longest
// is a year. The reason is shown to whoever is refused meanwhile, as one line of
// at most 200 bytes: keep secrets out of it. Slots that were reserved before are not taken
// back. An error is that of a limit that is
// not there or is a concurrency limit, which cannot be paused, of a key that is too
// long, or of Redis.
func (l *Limiter) Pause(ctx context.Context, limit, key string, until time.Time, reason string) error {
	length := time.Until(until)
	if l.now != nil {
		length = until.Sub(l.now())
	}
	if length <= 0 {
		return nil
	}
	return l.pause(ctx, limit, key, min(length, maxWithin), reason)
}

// Resume ends a pause of a bucket at once; without one it does nothing. From
// then on the bucket is as after any pause. Errors are those of [Limiter.Pause].
func (l *Limiter) Resume(ctx context.Context, limit, key string) error {
	return l.pause(ctx, limit, key, 0, "")
}

func (l *Limiter) pause(ctx context.Context, name, key string, length time.Duration, reason string) error {
	if l.shards != nil {
		return l.pauseSharded(ctx, name, key, length, reason)
	}
	i := slices.IndexFunc(l.limits, func(limit Limit) bool { return limit.Name == name })
	if i < 0 {
		return fmt.Errorf("throttle: pause: there is no limit %q", clip(name))
	}
	limit := l.limits[i]
	if limit.Algorithm == Concurrency {
		return fmt.Errorf("throttle: pause: limit %q is a %s, which cannot be paused", name, Concurrency)
	}
	if len(key) > l.maxKey {
		return fmt.Errorf("throttle: pause: the key is longer than %d bytes", l.maxKey)
	}
	reason = shown(reason)
	args := []any{l.clock()}
	args = append(args, l.appendSpecs(nil, police, 0)[6*i:6*i+6]...)
	// A waiting leaky bucket and a metering one are one bucket, and the same after a pause.
	args = append(args, length.Microseconds(), reason)
	if _, err := pauseScript.RunUntilDone(ctx, l.client, []string{l.bucket(limit, key)}, args...); err != nil {
		return fmt.Errorf("throttle: pause %q: %w", clip(key), err)
	}
	return nil
}

// shown is a reason as logs and headers can bear it: one line of text.
func shown(reason string) string {
	if len(reason) > maxReason {
		reason = reason[:maxReason]
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(reason, ""))
}
