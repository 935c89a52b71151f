package breaker

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/clients"
)

// Config says when a provider is down. The zero Config is ready for use.
type Config struct {
	// Failures is how many calls in a row have to fail. 0 means 5.
	Failures int

	// Pause is how long no call goes after that. 0 means 30 s.
	Pause time.Duration

	// MaxKeys is how many providers with failures are counted at a time. 0 means 10,000.
	MaxKeys int
}

// Breaker counts the failures of each provider. A nil one counts none.
type Breaker struct {
	config Config

	mu       sync.Mutex
	failures map[string]int // in a row; no entry: none
	opened   uint64
}

// New makes a Breaker. The error names every field that is wrong.
func New(config Config) (*Breaker, error) {
	var errs []error
	for _, field := range []struct {
		name  string
		below bool
	}{{"failures", config.Failures < 0}, {"pause", config.Pause < 0}, {"max keys", config.MaxKeys < 0}} {
		if field.below {
			errs = append(errs, fmt.Errorf("breaker: %s: it is below 0", field.name))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	config.Failures = cmp.Or(config.Failures, 5)
	config.Pause = cmp.Or(config.Pause, 30*time.Second)
	config.MaxKeys = cmp.Or(config.MaxKeys, 10_000)
	return &Breaker{config: config, failures: map[string]int{}}, nil
}

// Note takes the outcome of a call, and returns what the caller is to answer: the same,
// or when it was one failure too many, one that holds who back ([clients.Held]). key
// names the provider, for each that can be down by itself; with "" nothing is counted.
// The failure of a probe, which tried a provider that is held back, is always one too many.
func (b *Breaker) Note(key, who string, probe bool, err error) error {
	if b == nil || key == "" {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch judge(err) {
	case up:
		delete(b.failures, key)
	case down:
		n, known := b.failures[key]
		if !known && len(b.failures) >= b.config.MaxKeys {
			b.forget()
		}
		if n++; n < b.config.Failures && !probe {
			b.failures[key] = n
			return err
		}
		// Calls that are under way will fail, too, and are no new evidence.
		delete(b.failures, key)
		if !probe {
			b.opened++
		}
		return clients.Held(who, b.config.Pause, err)
	}
	return err
}

// forget makes room. Hosts are often a stranger's choice, and must cost neither memory
// nor time without bound.
func (b *Breaker) forget() {
	for key := range b.failures {
		delete(b.failures, key)
		return
	}
}

// Opened is how often a provider went down, since the start; 0 for a nil Breaker.
func (b *Breaker) Opened() uint64 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened
}

// evidence is what an outcome says of the provider.
type evidence int

const (
	neither evidence = iota
	up
	down
)

func judge(err error) evidence {
	if err == nil {
		return up
	}
	if none, ok := errors.AsType[interface {
		error
		NotCalled() bool
	}](err); ok && none.NotCalled() {
		return neither
	}
	if failed, ok := errors.AsType[interface {
		error
		Unavailable() bool
	}](err); ok && failed.Unavailable() {
		return down
	}
	if lost, ok := errors.AsType[interface {
		error
		Unknown() bool
	}](err); ok && lost.Unknown() {
		return down
	}
	if _, answered := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); answered {
		return up
	}
	if _, answered := errors.AsType[interface {
		error
		ParkUntil() time.Time
	}](err); answered {
		return up
	}
	return neither
}
