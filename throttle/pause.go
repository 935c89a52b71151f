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

// maxReason bounds the reason of a pause, in bytes.
const maxReason = 200

// Pause makes the bucket of a limit and a key admit nothing until the given moment, for
// all processes. Of several pauses the longest holds. After it a bucket with a rate
// starts with one permit instead of a full burst; windows keep their counts. Slots that
// were reserved before the pause are not taken back.
//
// until is a moment of this process's clock. What is sent is the time until then, so
// clocks need not agree. Pause does nothing if until has passed or is less than 1 µs away.
// A pause is at most a year long. Calls that it refuses get reason in their Decision, as one line of at most
// 200 bytes: it must not contain secrets.
//
// Pause returns an error if the limiter has no such limit, if it is a concurrency
// limit, which cannot be paused, if the key is too long, or that of Redis.
func (l *Limiter) Pause(ctx context.Context, limit, key string, until time.Time, reason string) error {
	length := until.Sub(l.time())
	if length < time.Microsecond { // to the script it would be 0, which ends a pause
		_, err := l.pausable(limit, key)
		return err
	}
	return l.pause(ctx, limit, key, min(length, maxWithin), reason)
}

// Resume ends the pause of a bucket at once, with the same state as if the pause had
// ended by itself. Without a pause it does nothing. Errors are those of [Limiter.Pause].
func (l *Limiter) Resume(ctx context.Context, limit, key string) error {
	return l.pause(ctx, limit, key, 0, "")
}

func (l *Limiter) pause(ctx context.Context, name, key string, length time.Duration, reason string) error {
	i, err := l.pausable(name, key)
	if err != nil {
		return err
	}
	if l.shards != nil {
		return l.pauseSharded(ctx, name, key, length, reason)
	}
	reason = shown(reason)
	args := []any{l.clock()}
	// A leaky bucket that shapes and one that polices share a state. After a pause the meter owes all but one permit, which
	// the queue would take for slots that were given.
	args = append(args, l.appendSpecs(nil, shape, 0)[6*i:6*i+6]...)
	args = append(args, length.Microseconds(), reason)
	bucket := l.bucket(l.limits[i], key)
	if _, err := pauseScript.RunUntilDone(ctx, l.client, []string{bucket}, args...); err != nil {
		return fmt.Errorf("throttle: pause %q: %w", clip(key), err)
	}
	l.forgetRefusals(&call{buckets: []string{bucket}}) // it has a reason now
	return nil
}

// pausable returns which limit a name is of, or an error if it or the key cannot be paused.
func (l *Limiter) pausable(name, key string) (int, error) {
	i := slices.IndexFunc(l.limits, func(limit Limit) bool { return limit.Name == name })
	switch {
	case i < 0:
		return 0, fmt.Errorf("throttle: pause: there is no limit %q", clip(name))
	case l.limits[i].Algorithm == Concurrency:
		return 0, fmt.Errorf("throttle: pause: limit %q is a %s, which cannot be paused", name, Concurrency)
	case len(key) > l.maxKey:
		return 0, fmt.Errorf("throttle: pause: the key is longer than %d bytes", l.maxKey)
	}
	return i, nil
}

// shown returns a reason as one line of valid text, which is safe in logs and headers.
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
