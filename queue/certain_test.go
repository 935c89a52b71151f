package queue

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestCertain: a request certainly had no effect only if it was never sent or Redis replied
// with an error.
func TestCertain(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"not connected": {&net.OpError{Op: "dial", Err: errors.New("refused")}, true},
		"while reading": {&net.OpError{Op: "read", Err: errors.New("reset")}, false},
		"while writing": {&net.OpError{Op: "write", Err: errors.New("reset")}, false},
		"cut off":       {io.EOF, false},
		"no connection": {redis.ErrPoolTimeout, true},
		"not sent":      {&unsentError{errors.New("it evicts")}, true},
	} {
		if got := certain(test.err); got != test.want {
			t.Errorf("%s: certain is %v", name, got)
		}
	}
}
