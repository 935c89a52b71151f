package breaker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/headgate/headgate/clients"
)

// Hold says what waits while a provider is down.
type Hold int

const (
	// HoldTenant lets the tenant of the refused call wait ([clients.Throttled]):
	// for keys that are a tenant's own.
	HoldTenant Hold = iota

	// HoldAccount lets the whole queue wait ([clients.AccountThrottled]): for a
	// provider that all tenants share.
	HoldAccount

	// HoldJob lets the refused job alone wait ([clients.ParkUntil]): for hosts of
	// which a tenant calls many.
	HoldJob
)

// Config says when a provider is down. The zero Config is ready for use.
type Config struct {
	// Failures is how many calls in a row have to fail. 0 means 5.
	Failures int

	// Pause is how long no call goes after that, and after a try that failed. 0
	// means 30 s.
	Pause time.Duration

	// Hold is what waits meanwhile. 0 means the tenant.
	Hold Hold

	// MaxKeys is how many circuits there may be; those of providers that work cost
	// nothing. Calls for which there is no room go without one. 0 means 10,000.
	MaxKeys int
}

// Breaker holds a circuit for each key. A nil one lets every call go.
type Breaker struct {
	config Config

	mu       sync.Mutex
	circuits map[string]*circuit
	opened   uint64
	refused  uint64
}

// circuit is what is known of one provider. It exists while calls are under way
// or failures are counted. All of it is guarded by Breaker.mu.
type circuit struct {
	machine *gobreaker.TwoStepCircuitBreaker[struct{}]
	calls   int       // under way
	since   time.Time // when it went down; zero: it works
	until   time.Time // when it may be tried
	last    string    // what the latest failure said
}

// probePause is for calls that come while another one tries the provider. Its
// answer may come at any moment.
const probePause = time.Second

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
	if config.Hold < HoldTenant || config.Hold > HoldJob {
		errs = append(errs, errors.New("breaker: hold: it is none of HoldTenant, HoldAccount, HoldJob"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	config.Failures = cmp.Or(config.Failures, 5)
	config.Pause = cmp.Or(config.Pause, 30*time.Second)
	config.MaxKeys = cmp.Or(config.MaxKeys, 10_000)
	return &Breaker{config: config, circuits: map[string]*circuit{}}, nil
}

// Do makes a call unless the provider of this key is down; then it answers with
// an error that wraps a [DownError] and is what Config.Hold says. The key must
// be no secret, for it stands in that error; "" makes the call unwatched.
func (b *Breaker) Do(ctx context.Context, key string, call func() error) error {
	if b == nil || key == "" {
		return call()
	}
	leave, err := b.enter(key)
	if err != nil {
		return err
	}
	result := errNoAnswer
	defer func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			// The call was cut off, whatever it says of itself.
			leave(errNoAnswer)
			return
		}
		leave(result)
	}()
	result = call()
	return result
}

// Guard puts a breaker in front of a client's Send. key names the provider of a
// call.
func Guard[P any](b *Breaker, key func(clients.Call, P) string, send func(context.Context, clients.Call, P) error) func(context.Context, clients.Call, P) error {
	return func(ctx context.Context, call clients.Call, payload P) error {
		return b.Do(ctx, key(call, payload), func() error { return send(ctx, call, payload) })
	}
}

// GuardResult is [Guard] for a Send that has a result. That of a refused call is
// the zero one.
func GuardResult[P, R any](b *Breaker, key func(clients.Call, P) string, send func(context.Context, clients.Call, P) (R, error)) func(context.Context, clients.Call, P) (R, error) {
	return func(ctx context.Context, call clients.Call, payload P) (result R, err error) {
		err = b.Do(ctx, key(call, payload), func() (err error) {
			result, err = send(ctx, call, payload)
			return err
		})
		return result, err
	}
}

// enter admits a call; leave must be told its outcome.
func (b *Breaker) enter(key string) (leave func(error), refusal error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.circuits[key]
	if c == nil {
		if !b.room() {
			return func(error) {}, nil
		}
		c = b.circuit(key)
		b.circuits[key] = c
	}
	report, err := c.machine.Allow()
	if err != nil {
		b.refused++
		return nil, b.refusal(key, c, errors.Is(err, gobreaker.ErrTooManyRequests))
	}
	c.calls++
	return func(err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if judge(err) == down {
			c.last = clients.Printable(err.Error(), mostReason)
		}
		report(err)
		c.calls--
		if c.calls == 0 && c.machine.State() == gobreaker.StateClosed && c.machine.Counts().ConsecutiveFailures == 0 && b.circuits[key] == c {
			delete(b.circuits, key)
		}
	}, nil
}

// circuit makes one. What it is given is called with b.mu held.
func (b *Breaker) circuit(key string) *circuit {
	c := &circuit{}
	c.machine = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        key,
		MaxRequests: 1,
		Timeout:     b.config.Pause - 1, // it is open up to and with that moment
		ReadyToTrip: func(counts gobreaker.Counts) bool {
			return int64(counts.ConsecutiveFailures) >= int64(b.config.Failures)
		},
		IsSuccessful: func(err error) bool { return judge(err) == up },
		IsExcluded:   func(err error) bool { return judge(err) == neither },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			switch to {
			case gobreaker.StateOpen:
				now := time.Now()
				c.until = now.Add(b.config.Pause)
				if c.since.IsZero() {
					c.since = now
					b.opened++
				}
			case gobreaker.StateClosed:
				c.since = time.Time{}
			}
		},
	})
	return c
}

// room tells whether there may be another circuit. It looks at few of those that
// there are, at random, for one that nobody misses: hosts are often a stranger's
// choice, and must cost neither memory nor time without bound.
func (b *Breaker) room() bool {
	if len(b.circuits) < b.config.MaxKeys {
		return true
	}
	looked := 0
	for key, c := range b.circuits {
		forgotten := c.since.IsZero() || time.Since(c.until) > b.config.Pause
		if c.calls == 0 && forgotten {
			delete(b.circuits, key)
			return true
		}
		if looked++; looked == 16 {
			break
		}
	}
	return false
}

func (b *Breaker) refusal(key string, c *circuit, probing bool) error {
	after := time.Until(c.until)
	if probing {
		after = min(probePause, b.config.Pause)
	}
	after = max(after, time.Millisecond)
	err := &DownError{Key: key, Since: c.since, After: after, Last: c.last}
	switch b.config.Hold {
	case HoldAccount:
		return clients.AccountThrottled(after, err)
	case HoldJob:
		return clients.ParkUntil(time.Now().Add(after), err)
	}
	return clients.Throttled(after, err)
}

// DownError reports that a call was not made, for its provider is down.
type DownError struct {
	Key   string
	Since time.Time
	After time.Duration // until the provider may be tried, or the try under way may be over
	Last  string        // what the latest failure said
}

func (e *DownError) Error() string {
	return fmt.Sprintf("%s is down since %s and was not called: %s",
		clients.Printable(e.Key, mostReason), e.Since.UTC().Format(time.RFC3339), e.Last)
}

// NotCalled is true: see [clients.NotCalled].
func (e *DownError) NotCalled() bool { return true }

// mostReason bounds what of a key and of a failure stands in an error, in bytes.
const mostReason = 200

// State is one of the three of a circuit.
type State string

// The states of a circuit.
const (
	Closed   State = "closed"    // the provider works
	Open     State = "open"      // it is down
	HalfOpen State = "half-open" // it may be tried, one call at a time
)

// Status is what is known of a provider that is down.
type Status struct {
	Key   string
	State State
	Since time.Time // when it went down
	Until time.Time // when it may be tried
	Last  string    // what the latest failure said
}

// State is that of a key; [Closed] for one that was never used.
func (b *Breaker) State(key string) State {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.circuits[key]
	if c == nil {
		return Closed
	}
	return c.state()
}

// Down lists the providers that are not [Closed], sorted by key.
func (b *Breaker) Down() []Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []Status
	for key, c := range b.circuits {
		if state := c.state(); state != Closed {
			list = append(list, Status{key, state, c.since, c.until, c.last})
		}
	}
	slices.SortFunc(list, func(a, b Status) int { return strings.Compare(a.Key, b.Key) })
	return list
}

// Stats are numbers for metrics.
type Stats struct {
	Open, HalfOpen int    // circuits right now
	Opened         uint64 // times that a provider went down, since the start
	Refused        uint64 // calls that were not made, since the start
}

// Stats counts over all keys; all is 0 for a nil Breaker.
func (b *Breaker) Stats() Stats {
	if b == nil {
		return Stats{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	stats := Stats{Opened: b.opened, Refused: b.refused}
	for _, c := range b.circuits {
		switch c.state() {
		case Open:
			stats.Open++
		case HalfOpen:
			stats.HalfOpen++
		}
	}
	return stats
}

func (c *circuit) state() State {
	switch c.machine.State() {
	case gobreaker.StateOpen:
		return Open
	case gobreaker.StateHalfOpen:
		return HalfOpen
	}
	return Closed
}
