package throttle

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"

	"github.com/redis/go-redis/v9"
)

//go:embed limits.lua
var library string

// Script is a Lua script with the functions of limits.lua in front of its body.
//
// It is sent at most once: a script that takes permits must not be repeated
// when only its reply was lost, whatever the client's own MaxRetries. An error
// that is not an answer of Redis therefore leaves open whether it took effect.
type Script struct {
	text, sha string
}

// NewScript puts the body behind limits.lua.
func NewScript(body string) *Script {
	text := library + "\n" + body
	sum := sha1.Sum([]byte(text)) // Redis names scripts by SHA-1; nothing is secured by it
	return &Script{text: text, sha: hex.EncodeToString(sum[:])}
}

// Run sends EVALSHA, and EVAL only when Redis answered that it does not know
// the script, which is when it certainly did not run.
func (s *Script) Run(ctx context.Context, client redis.UniversalClient, keys []string, args ...any) (any, error) {
	reply, err := s.send(ctx, client, "evalsha", s.sha, keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return s.send(ctx, client, "eval", s.text, keys, args)
	}
	return reply, err
}

func (s *Script) send(ctx context.Context, client redis.UniversalClient, verb, script string, keys []string, args []any) (any, error) {
	words := make([]any, 0, 3+len(keys)+len(args))
	words = append(words, verb, script, len(keys))
	for _, key := range keys {
		words = append(words, key)
	}
	cmd := redis.NewCmd(ctx, append(words, args...)...)
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	if err := client.Process(ctx, onceCmd{cmd}); err != nil {
		return nil, err
	}
	return cmd.Result()
}

// onceCmd keeps go-redis from sending a command again after a lost reply.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }
