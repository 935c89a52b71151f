// Package redisscript builds Lua scripts from a body and the library functions that it
// uses, and runs each of them at most once.
package redisscript

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisclient"
)

// Script is a Lua script: a body after the library functions that it uses. [New] creates it.
//
// A script runs at most once, whatever the client's MaxRetries: one that takes permits must not
// be repeated if only its reply was lost. After an error that is not an answer of Redis it is
// therefore unknown whether the script took effect.
type Script struct {
	// linked links the script once, when it is first used: a program uses few of the scripts, and
	// linking all of them takes a tenth of a second.
	linked func() linkedText
	used   *atomic.Bool // it has been linked
	tight  *Script      // the same with allow-oom, for a Redis without free memory; nil: the script fails there
}

// linkedText has strings; in this form they go on the wire without being copied.
type linkedText struct{ text, sha any }

// New returns a script that consists of the body and, in front of it, the declarations of
// the libraries that it uses. A library may use those before it.
func New(body string, libraries ...string) *Script {
	return newScript(func() string { return linked(body, libraries) })
}

// Else returns a script that runs s and then, only if s returned nothing, other. The functions of
// other are created only then.
func (s *Script) Else(other *Script) *Script {
	return newScript(func() string {
		return "local answer = (function()\n" + s.Text() + "end)()\nif answer then return answer end\n" + other.Text()
	})
}

// AllowOOM returns a script that also runs if Redis has reached its maxmemory. Use it for scripts
// that need hardly any memory.
func (s *Script) AllowOOM() *Script {
	// The flag is sent only if needed, because imitations of Redis reject it.
	return &Script{linked: s.linked, used: s.used, tight: newScript(func() string { return "#!lua flags=allow-oom\n" + s.Text() })}
}

func newScript(text func() string) *Script {
	used := &atomic.Bool{}
	return &Script{used: used, linked: sync.OnceValue(func() linkedText {
		text := text()
		sum := sha1.Sum([]byte(text)) // Redis names scripts by SHA-1; nothing is secured by it
		used.Store(true)
		return linkedText{text: text, sha: hex.EncodeToString(sum[:])}
	})}
}

// Text returns the Lua text that Redis runs.
func (s *Script) Text() string { return s.linked().text.(string) }

// Hash returns the SHA-1 of the script's text, by which Redis identifies it.
func (s *Script) Hash() string { return s.linked().sha.(string) }

// Has reports whether the script, or its form for a full Redis, has been used and has this hash.
func (s *Script) Has(hash string) bool {
	return s != nil && (s.used.Load() && s.Hash() == hash || s.tight.Has(hash))
}

// Run sends EVALSHA. It sends the script again only if the error of Redis means that the script
// did not run: Redis does not know it, or has no memory. The reply is
// as go-redis decodes it; errors are those of Redis and of the client.
func (s *Script) Run(ctx context.Context, client redis.UniversalClient, keys []string, args ...any) (any, error) {
	cmd := s.command(ctx, "evalsha", s.linked().sha, keys, args)
	if err := client.Process(ctx, onceCmd{cmd}); err == nil {
		return cmd.Result()
	}
	return s.again(ctx, client, cmd.Err(), keys, args)
}

// AddTo adds the script to a pipeline of the client. Once the pipeline was executed,
// reply returns what [Script.Run] would.
func (s *Script) AddTo(ctx context.Context, pipe redis.Pipeliner, client redis.UniversalClient, keys []string, args ...any) (reply func() (any, error)) {
	cmd := s.command(ctx, "evalsha", s.linked().sha, keys, args)
	_ = pipe.Process(ctx, onceCmd{cmd})
	return func() (any, error) {
		if err := cmd.Err(); err != nil {
			return s.again(ctx, client, err, keys, args)
		}
		return cmd.Result()
	}
}

// again handles the error of an EVALSHA.
func (s *Script) again(ctx context.Context, client redis.UniversalClient, err error, keys []string, args []any) (any, error) {
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		cmd := s.command(ctx, "eval", s.linked().text, keys, args)
		if err = client.Process(ctx, onceCmd{cmd}); err == nil {
			return cmd.Result()
		}
	}
	if s.tight != nil && redis.HasErrorPrefix(err, "OOM") {
		return s.tight.Run(ctx, client, keys, args...)
	}
	redisclient.FindNodes(ctx, client, err)
	return nil, err
}

// RunThen is like [Script.Run] on one server, with a command that is sent right behind the script: in
// the same round trip and on the same connection. Only that command has its error.
func (s *Script) RunThen(ctx context.Context, server *redis.Client, then redis.Cmder, keys []string, args ...any) (any, error) {
	both := func(verb string, script any) (any, error) {
		cmd := s.command(ctx, verb, script, keys, args)
		pipe := server.Pipeline()
		_ = pipe.Process(ctx, onceCmd{cmd}) // so the pipeline is not sent again either
		_ = pipe.Process(ctx, then)
		_, _ = pipe.Exec(ctx)
		return cmd.Result()
	}
	reply, err := both("evalsha", s.linked().sha)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = both("eval", s.linked().text)
	}
	if redis.HasErrorPrefix(err, "OOM") && s.tight != nil {
		return s.tight.RunThen(ctx, server, then, keys, args...)
	}
	return reply, err
}

// RunUntilDone is like [Script.Run], but returns as soon as ctx is done, even if the server
// does not answer. Then it is not known whether the script ran, unless ctx was done before: then it did not.
func (s *Script) RunUntilDone(ctx context.Context, client redis.UniversalClient, keys []string, args ...any) (any, error) {
	if ctx.Done() == nil {
		return s.Run(ctx, client, keys, args...)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	type answer struct {
		reply any
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		reply, err := s.Run(context.WithoutCancel(ctx), client, keys, args...)
		answered <- answer{reply, err}
	}()
	select {
	case a := <-answered:
		return a.reply, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *Script) command(ctx context.Context, verb, script any, keys []string, args []any) *redis.Cmd {
	words := make([]any, 3+len(keys)+len(args))
	words[0], words[1], words[2] = verb, script, len(keys)
	for i, key := range keys {
		words[3+i] = key
	}
	copy(words[3+len(keys):], args)
	cmd := redis.NewCmd(ctx, words...)
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	return cmd
}

// onceCmd keeps go-redis from sending a command again after a lost reply.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }
