package queue

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
)

// The scopes of a pause are a tenant's escaped name, the whole queue, and a kind;
// no escaped name is like the other two.
const wholeQueue = "*"

func kindScope(escapedKind string) string { return "k:" + escapedKind }

// mostWords bounds what is kept of a provider's words.
const mostWords = 256

// pauses is what this process knows of a queue's pauses, by scope: until when,
// on the boot clock. Those of other workers come with the next round of dispatch.
type pauses struct {
	mu      sync.RWMutex
	until   map[string]time.Duration
	version int64 // of what was read from Redis
}

// add notes a pause before Redis has it.
func (p *pauses) add(scope string, until time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == nil {
		p.until = map[string]time.Duration{}
	}
	p.until[scope] = max(p.until[scope], until)
}

func (p *pauses) holds(now time.Duration, scopes ...string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, scope := range scopes {
		if now < p.until[scope] {
			return true
		}
	}
	return false
}

// follow reads the pauses again if they were changed.
func (p *pauses) follow(ctx context.Context, client redis.UniversalClient, queue string, version int64, clock *redisClock) error {
	p.mu.RLock()
	known := p.version
	p.mu.RUnlock()
	if known == version {
		return nil
	}
	all, err := client.HGetAll(ctx, key(queue, "pauses")).Result()
	if err != nil {
		return err
	}
	until := make(map[string]time.Duration, len(all))
	for scope, text := range all {
		until[scope] = clock.boot(min(pausedUntil(text), endless))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until, p.version = until, version
	return nil
}

// pausedUntil is the end of a pause, µs since the epoch, as lanes.lua writes it:
// "until_us by reason"; 0 for what is none.
func pausedUntil(text string) int64 {
	first, _, _ := strings.Cut(text, " ")
	micros, _ := strconv.ParseInt(first, 10, 64)
	return micros
}

// endless is when a pause ends that ends when somebody resumes, µs since the epoch.
const endless = int64(9e15)

// printable is a text in one line of valid text, at most so long.
func printable(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}
