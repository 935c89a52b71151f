package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/breaker"
)

var (
	errLost = clients.Unknown(errors.New("connection reset"))
	errDown = clients.Unreachable(errors.New("connection refused"))
	errFail = clients.Unavailable(errors.New("it answered 500"))
	errBusy = clients.Throttled(time.Second, errors.New("slow down"))
	errGrey = clients.Retryable(errors.New("450 greylisted"))
	errBad  = clients.Permanent(errors.New("no such thing"))
)

func newBreaker(t testing.TB, config breaker.Config) *breaker.Breaker {
	t.Helper()
	b, err := breaker.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestNew(t *testing.T) {
	_, err := breaker.New(breaker.Config{Failures: -1, Pause: -1, MaxKeys: -1})
	for _, field := range []string{"failures", "pause", "max keys"} {
		if err == nil || !strings.Contains(err.Error(), "breaker: "+field+": ") {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}

// TestEvidence: which outcomes hold a provider back, and at which of them.
func TestEvidence(t *testing.T) {
	canceled := fmt.Errorf("call: %w", context.Canceled)
	tests := map[string]struct {
		outcomes []error
		at       []int // the failures that were one too many
	}{
		"unreachable":              {[]error{errDown, errDown, errDown}, []int{2}},
		"unavailable":              {[]error{errFail, errFail, errFail}, []int{2}},
		"unknown":                  {[]error{errLost, errLost, errLost}, []int{2}},
		"all of them":              {[]error{errLost, errDown, errFail}, []int{2}},
		"again and again":          {slices.Repeat([]error{errDown}, 6), []int{2, 5}},
		"too few":                  {[]error{errLost, errDown}, nil},
		"one that worked":          {[]error{errDown, errDown, nil, errDown, errDown}, nil},
		"throttled answers":        {[]error{errDown, errDown, errBusy, errDown, errDown}, nil},
		"postponed answers":        {[]error{errDown, errDown, clients.PostponeUntil(time.Now(), nil), errDown, errDown}, nil},
		"exhausted answers":        {[]error{errDown, errDown, clients.Exhausted(0, nil), errDown, errDown}, nil},
		"permanent is no evidence": {[]error{errDown, errDown, errBad, errDown}, []int{3}},
		"permanent alone":          {slices.Repeat([]error{errBad}, 50), nil},
		"retryable answers":        {slices.Repeat([]error{errGrey}, 50), nil},
		"throttled alone":          {slices.Repeat([]error{errBusy}, 50), nil},
		"the worker ended":         {slices.Repeat([]error{canceled}, 50), nil},
		"nothing was sent":         {slices.Repeat([]error{clients.Retryable(clients.NotCalled(nil))}, 50), nil},
		"any other error":          {slices.Repeat([]error{errors.New("x")}, 50), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBreaker(t, breaker.Config{Failures: 3, Pause: time.Minute})
			var at []int
			for i, outcome := range tt.outcomes {
				got := b.Note(t.Context(), "smtp", clients.OfAccount, false, outcome)
				held, is := errors.AsType[*clients.HeldError](got)
				if is {
					at = append(at, i)
				} else if got != outcome {
					t.Errorf("call %d became %v", i, got)
				}
				if is && (!errors.Is(got, outcome) || *held != clients.HeldError{Who: clients.OfAccount, Length: time.Minute, Err: outcome}) {
					t.Errorf("held %+v", held)
				}
				if got := b.Note(t.Context(), "other", clients.OfAccount, false, errBad); got != errBad {
					t.Errorf("another provider: %v", got)
				}
			}
			if !slices.Equal(at, tt.at) || b.Opened() != uint64(len(tt.at)) {
				t.Errorf("held back at %v, %d times; want %v", at, b.Opened(), tt.at)
			}
		})
	}
}

// TestProbe: one failure of a probe holds the provider back again.
func TestProbe(t *testing.T) {
	b := newBreaker(t, breaker.Config{Failures: 3})
	for _, outcome := range []error{errDown, errGrey, nil} {
		_, held := errors.AsType[*clients.HeldError](b.Note(t.Context(), "smtp", clients.OfTenant, true, outcome))
		if held != (outcome == errDown) {
			t.Errorf("%v: held %v", outcome, held)
		}
	}
	if b.Opened() != 0 {
		t.Error("a probe opened it")
	}
}

// TestMaxKeys: strangers' hosts cost no memory without bound.
func TestMaxKeys(t *testing.T) {
	b := newBreaker(t, breaker.Config{Failures: 2, MaxKeys: 10})
	for i := range 1000 {
		if err := b.Note(t.Context(), fmt.Sprint(i), clients.OfEndpoint, false, errDown); err != errDown {
			t.Fatal(err)
		}
	}
	known := 0
	for i := range 1000 {
		if err := b.Note(t.Context(), fmt.Sprint(i), clients.OfEndpoint, false, errDown); err != errDown {
			known++
		}
	}
	if known > 10 {
		t.Errorf("%d hosts were remembered", known)
	}
}

// TestStop: calls that were cut off by the worker's stop say nothing of the provider.
func TestStop(t *testing.T) {
	b := newBreaker(t, breaker.Config{Failures: 2})
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, probe := range []bool{false, false, true} {
		if err := b.Note(stopped, "smtp", clients.OfAccount, probe, errDown); err != errDown {
			t.Errorf("probe %v: %v", probe, err)
		}
	}
	if err := b.Note(t.Context(), "smtp", clients.OfAccount, false, errDown); err != errDown || b.Opened() != 0 {
		t.Errorf("the first failure: %v", err)
	}
}

func TestNone(t *testing.T) {
	var none *breaker.Breaker
	if err := none.Note(t.Context(), "x", clients.OfTenant, true, errDown); err != errDown || none.Opened() != 0 {
		t.Error(err)
	}
	if err := newBreaker(t, breaker.Config{Failures: 1}).Note(t.Context(), "", clients.OfTenant, false, errDown); err != errDown {
		t.Error(err)
	}
}
