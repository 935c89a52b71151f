package breaker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/clients"
)

// Config configures a [Breaker]. The zero Config is ready to use.
type Config struct {
	// Failures is the number of consecutive failures after which a provider is down. 0 means 5.
	Failures int

	// Pause is how long calls are then held back. 0 means 30 s.
	Pause time.Duration

	// MaxKeys is the max number of providers whose failures are counted. 0 means 10,000.
	MaxKeys int
}

// Breaker counts the consecutive failures of each provider. A nil Breaker counts none.
type Breaker struct {
	config Config

	mu       sync.Mutex
	failures map[string]int // consecutive; no entry: 0
	opened   uint64
}

// New returns a Breaker. Its error names all invalid fields.
func New(config Config) (*Breaker, error) {
	var errs []error
	for _, field := range []struct {
		name  string
		below bool
	}{{"failures", config.Failures < 0}, {"pause", config.Pause < 0}, {"max keys", config.MaxKeys < 0}} {
		if field.below {
			errs = append(errs, fmt.Errorf("breaker: %s: must not be negative", field.name))
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

// Note records the outcome of a call and returns the outcome to report: err itself or, after
// too many failures, one that holds back who ([clients.Held]). key identifies the provider.
// Nothing is counted if key is "", or if ctx, the context of the call, was canceled, as when the
// worker stops. The failure of a probe, which tries a provider that is held back, always counts as
// too many.
func (b *Breaker) Note(ctx context.Context, key, who string, probe bool, err error) error {
	if b == nil || key == "" || errors.Is(ctx.Err(), context.Canceled) {
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
		// Calls in flight will fail too; start counting again, since they are no new evidence.
		delete(b.failures, key)
		if !probe {
			b.opened++
		}
		return clients.Held(who, b.config.Pause, err)
	}
	return err
}

// forget removes an arbitrary entry. Hosts are chosen by strangers, so memory and time for them
// must be bounded.
func (b *Breaker) forget() {
	for key := range b.failures {
		delete(b.failures, key)
		return
	}
}

// Opened returns how often a provider went down since the start; 0 for a nil Breaker.
func (b *Breaker) Opened() uint64 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened
}

// evidence is what an outcome says about the provider.
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
		PostponeUntil() time.Time
	}](err); answered {
		return up
	}
	return neither
}
