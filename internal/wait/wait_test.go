package wait

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	for name, test := range map[string]struct {
		d, ends, took time.Duration // ends is when ctx does
		want          error
	}{
		"it is over":                  {d: time.Second, ends: time.Minute, took: time.Second},
		"ctx ends before":             {d: time.Minute, ends: time.Second, took: time.Second, want: context.DeadlineExceeded},
		"nothing to wait for":         {d: -time.Second, ends: time.Second},
		"nothing, and ctx has ended":  {want: context.DeadlineExceeded},
		"ctx has ended when it began": {d: time.Second, want: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.ends)
				defer cancel()
				began := time.Now()
				if err := For(ctx, test.d); err != test.want || time.Since(began) != test.took {
					t.Errorf("%v after %v; want %v after %v", err, time.Since(began), test.want, test.took)
				}
			})
		})
	}
}
