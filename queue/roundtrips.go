package queue

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisscript"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
)

// scriptNames has the names of the scripts that were sent, by their hash.
var scriptNames sync.Map

// scriptName returns the name of a script that was sent; "other" if it is none of the queue's.
func scriptName(hash string) string {
	if name, known := scriptNames.Load(hash); known {
		return name.(string)
	}
	name := "other"
	if redisscript.Anyway.Has(hash) {
		name = "anyway"
	}
	for its, script := range store.Scripts {
		if script.Has(hash) {
			name = its
		}
	}
	if name != "other" { // what others send has no end
		scriptNames.Store(hash, name)
	}
	return name
}

// roundTrips is a go-redis hook that reports every round trip to the observer. It is added
// after all other hooks, because these answer some commands themselves.
type roundTrips struct {
	observer Observer
}

func (h roundTrips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h roundTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmd)
		h.observer.RoundTrip(RoundTrip{Command: h.name(cmd), Took: time.Since(began), Failed: failed(err)})
		return err
	}
}

func (h roundTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmds)
		h.observer.RoundTrip(RoundTrip{Command: "pipeline", Took: time.Since(began), Failed: failed(err)})
		return err
	}
}

func (h roundTrips) name(cmd redis.Cmder) string {
	args := cmd.Args()
	command := strings.ToLower(cmd.Name())
	switch {
	case (command == "eval" || command == "evalsha") && len(args) > 1:
		hash, _ := args[1].(string)
		if command == "eval" { // sent in full, to a Redis that does not know the script yet
			sum := sha1.Sum([]byte(hash))
			hash = hex.EncodeToString(sum[:])
		}
		return "script:" + scriptName(hash)
	}
	return command
}

// failed reports whether err is a failure of a round trip. A missing value, a script that
// must be sent in full, calendars that a script reports as stale, and a cancellation by the
// caller are not failures.
func failed(err error) bool {
	return err != nil && !errors.Is(err, redis.Nil) && !errors.Is(err, context.Canceled) &&
		!redis.HasErrorPrefix(err, "NOSCRIPT") && !effective.Stale(err)
}
