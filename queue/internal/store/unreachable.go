package store

import (
	"errors"
	"io"
	"net"

	"github.com/redis/go-redis/v9"
)

// Unreachable reports whether an error means that a Redis did not answer. One that answered with an
// error, and a client that was closed, are not meant.
func Unreachable(err error) bool {
	if _, answer := errors.AsType[redis.Error](err); answer || errors.Is(err, redis.ErrClosed) {
		return false
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}
