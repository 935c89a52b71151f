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

// scriptNames returns the names of all scripts, by their hash.
var scriptNames = sync.OnceValue(func() map[string]string {
	names := map[string]string{}
	add := func(name string, script *redisscript.Script) {
		names[script.Hash()] = name
		if full := script.Full(); full != nil {
			names[full.Hash()] = name
		}
	}
	for name, script := range store.Scripts {
		add(name, script)
	}
	add("anyway", redisscript.Anyway)
	return names
})

// roundTrips is a go-redis hook that reports every round trip to the observer. It is added
// after all other hooks, because these answer some commands themselves.
type roundTrips struct {
	observer Observer
	scripts  map[string]string // their names, by their hash
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
		if name, ok := h.scripts[hash]; ok {
			return "script:" + name
		}
		return "script:other"
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
