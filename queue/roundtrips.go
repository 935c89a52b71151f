package queue

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
)

// scriptNames are those of all scripts, by their hash.
var scriptNames = func() map[string]string {
	names := map[string]string{}
	for name, script := range store.Scripts {
		names[script.Hash()] = name
		if full := script.Full(); full != nil {
			names[full.Hash()] = name
		}
	}
	return names
}()

// roundTrips tells the observer of every round trip of a client. It is added
// behind all other hooks, which answer some commands themselves.
type roundTrips struct {
	observer Observer
	scripts  string // what a script is called whose name is not known
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
		if command == "eval" { // by a Redis that does not know the script yet
			sum := sha1.Sum([]byte(hash))
			hash = hex.EncodeToString(sum[:])
		}
		if name, ok := scriptNames[hash]; ok {
			return "script:" + name
		}
		return "script:" + h.scripts
	}
	return command
}

// failed leaves out what is an answer: that something is not there, that a script
// has to be sent in full, or that a job or a limit is not as the script needs it.
func failed(err error) bool {
	return err != nil && !errors.Is(err, redis.Nil) && !errors.Is(err, context.Canceled) &&
		!redis.HasErrorPrefix(err, "NOSCRIPT") && !effective.Stale(err)
}
