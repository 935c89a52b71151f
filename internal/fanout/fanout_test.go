package fanout

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestAsk: the slow are not waited for, and neither are all once ctx ends.
func TestAsk(t *testing.T) {
	no := errors.New("no")
	delays := map[string]time.Duration{"now": 0, "soon": 400 * time.Millisecond, "refuses": time.Millisecond, "late": time.Minute}
	for name, test := range map[string]struct {
		until time.Duration // when ctx is canceled
		took  time.Duration
		said  []string
		errs  []error
	}{
		"one is late":  {time.Hour, time.Second, []string{"now!", "soon!", "", ""}, []error{nil, nil, no, context.DeadlineExceeded}},
		"ctx is over":  {100 * time.Millisecond, 100 * time.Millisecond, []string{"now!", "", "", ""}, []error{nil, context.Canceled, no, context.Canceled}},
		"ctx was over": {0, 0, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(test.until, cancel)
				began := time.Now()
				said, errs := Ask(ctx, time.Second, []string{"now", "soon", "refuses", "late"}, func(_ context.Context, name string) (string, error) {
					time.Sleep(delays[name]) // of the bubble
					if name == "refuses" {
						return "", no
					}
					return name + "!", nil
				})
				if took := time.Since(began); took != test.took {
					t.Errorf("it took %v; want %v", took, test.took)
				}
				time.Sleep(time.Minute) // until the last has answered, to nobody
				if test.said != nil && (!slices.Equal(said, test.said) || !slices.Equal(errs, test.errs)) {
					t.Errorf("%q, %v; want %q, %v", said, errs, test.said, test.errs)
				}
			})
		})
	}
}
