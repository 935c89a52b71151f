package worker

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestParts: whatever part fails, or ends before the program, ends it with an error.
func TestParts(t *testing.T) {
	fails := errors.New("fails")
	blocks := func(ctx context.Context) error { <-ctx.Done(); return nil }
	returns := func(err error) part { return func(context.Context) error { return err } }
	for _, tt := range []struct {
		name   string
		other  part
		stop   bool
		want   error
		failed bool
	}{
		{"all stop with the context", blocks, true, nil, false},
		{"one fails", returns(fails), false, fails, true},
		{"one ends", returns(nil), false, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // if no part ends the program
			defer cancel()
			if tt.stop {
				cancel()
			}
			err := runParts(ctx, blocks, blocks, tt.other)
			if (err != nil) != tt.failed || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("%v", err)
			}
		})
	}
}
