package main

import (
	"errors"

	"github.com/headgate/headgate/internal/program"
)

// unknownError says that nothing has the id that was given.
type unknownError struct{ error }

// oneByOne calls do for each id, also after an unknownError, and returns the ids for which it succeeded. If these are only
// some, the error is a partialError.
func oneByOne(ids []string, do func(id string) error) (done []string, err error) {
	var unknown []error
	for _, id := range ids {
		if err = do(id); err == nil {
			done = append(done, id)
			continue
		}
		if _, ok := errors.AsType[unknownError](err); !ok {
			break
		}
		unknown, err = append(unknown, err), nil
	}
	all := errors.Join(append(unknown, err)...)
	switch {
	case all == nil:
		return done, nil
	case len(done) > 0:
		return done, partialError{oneLine(all)}
	case err != nil:
		return nil, err
	default:
		return nil, &program.UsageError{Err: oneLine(all)}
	}
}
