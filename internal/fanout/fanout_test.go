package fanout

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestAsk: the slow are not waited for once one has answered, and neither are all once ctx ends.
func TestAsk(t *testing.T) {
	no := errors.New("no")
	delays := map[string]time.Duration{"now": 0, "soon": 400 * time.Millisecond, "refuses": time.Millisecond, "late": 3 * time.Second, "later": time.Minute}
	for name, test := range map[string]struct {
		ask   []string
		until time.Duration // when ctx is canceled
		took  time.Duration
		said  []string
		errs  []error
	}{
		"one is late":         {[]string{"now", "soon", "refuses", "late"}, time.Hour, time.Second, []string{"now!", "soon!", "", ""}, []error{nil, nil, no, context.DeadlineExceeded}},
		"nobody is in time":   {[]string{"refuses", "late", "later"}, time.Hour, 3 * time.Second, []string{"", "late!", ""}, []error{no, nil, context.DeadlineExceeded}},
		"nobody answers":      {[]string{"refuses", "refuses"}, time.Hour, time.Millisecond, []string{"", ""}, []error{no, no}},
		"ctx is over":         {[]string{"now", "soon", "refuses", "late"}, 100 * time.Millisecond, 100 * time.Millisecond, []string{"now!", "", "", ""}, []error{nil, context.Canceled, no, context.Canceled}},
		"ctx is over in vain": {[]string{"late", "later"}, 2 * time.Second, 2 * time.Second, []string{"", ""}, []error{context.Canceled, context.Canceled}},
		"ctx was over":        {[]string{"now", "late"}, 0, 0, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(test.until, cancel)
				began := time.Now()
				said, errs := Ask(ctx, time.Second, test.ask, func(_ context.Context, name string) (string, error) {
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
