package api

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// away reports whether an error means that Redis does not answer, or cannot execute commands
// now.
func away(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	if said, ok := errors.AsType[redis.Error](err); ok {
		for _, word := range []string{"LOADING", "OOM", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF", "BUSY"} {
			if strings.HasPrefix(said.Error(), word) {
				return true
			}
		}
	}
	return false
}
