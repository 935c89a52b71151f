package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue/internal/store"
)

const (
	// patience is how long a call without a deadline retries.
	patience = 5 * time.Second

	// repeatFor is how long a request is retried after its first try that may have
	// arrived. enqueue.lua remembers its answers for twice as long, because a try can be
	// delayed for as long as the network is down.
	repeatFor = 30 * time.Second

	minRetryPause = 50 * time.Millisecond
	maxRetryPause = time.Second
)

// retry paces the retries of one call of a client to one partition. All batches of it share it.
type retry struct {
	end   time.Time // when retries end; zero while Redis answers, or if the context has a deadline
	pause time.Duration
}

// reset starts again after Redis has answered.
func (r *retry) reset() { *r = retry{} }

// wait waits before another try. It returns false if there is no time for one. unknown is
// when the first try that may have arrived was sent; zero: none was.
func (r *retry) wait(ctx context.Context, unknown time.Time) bool {
	end, bounded := ctx.Deadline()
	if !bounded {
		if r.end.IsZero() {
			r.end = time.Now().Add(patience)
		}
		end = r.end
	}
	if !unknown.IsZero() && unknown.Add(repeatFor).Before(end) {
		end = unknown.Add(repeatFor)
	}
	r.pause = min(max(2*r.pause, minRetryPause), maxRetryPause)
	pause := r.pause/2 + rand.N(r.pause/2)
	if time.Until(end) < pause {
		return false
	}
	return wait.For(ctx, pause) == nil
}

// seek waits before a job is sent to where its tenant is, after it was sent to where it is not. While a
// tenant moves, tries go to its two partitions in turn.
func (r *retry) seek(ctx context.Context, try int) bool {
	return try%2 == 0 && ctx.Err() == nil || r.wait(ctx, time.Time{})
}

// unsentError reports that a request was not sent at all.
type unsentError struct{ err error }

func (e *unsentError) Error() string { return e.err.Error() }
func (e *unsentError) Unwrap() error { return e.err }

// certain reports whether a request that failed with err certainly had no effect: it was not
// sent, or Redis replied with an error.
func certain(err error) bool {
	if _, unsent := errors.AsType[*unsentError](err); unsent {
		return true
	}
	if answer, answered := errors.AsType[redis.Error](err); answered {
		return !denied(answer)
	}
	if failed, ok := errors.AsType[*net.OpError](err); ok && failed.Op == "dial" {
		return true
	}
	// go-redis gives up because of the context only while it waits for a connection. Its
	// deadlines for sending and reading return network errors.
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// denied reports whether the ACL of Redis stopped a script, which may have written before.
func denied(err error) bool {
	text := err.Error()
	return strings.Contains(text, "user executing the script") || strings.HasPrefix(text, "NOPERM") && strings.Contains(text, "script")
}

// passing reports whether an error is temporary, as in a failover: Redis did not answer, or
// it replied that it cannot work now.
func passing(err error) bool {
	if answer, ok := errors.AsType[redis.Error](err); ok {
		for _, word := range []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "NOREPLICAS", "BUSY ",
			"ERR max number of clients", "ERR Script attempted to access a non local key"} { // the latter: a hash slot is being moved to another node
			if strings.HasPrefix(answer.Error(), word) {
				return true
			}
		}
		return false
	}
	return store.Unreachable(err)
}
