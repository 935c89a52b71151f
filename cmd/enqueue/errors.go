package main

import (
	"errors"
	"strings"

	"github.com/headgate/headgate/queue/validation"
)

// oneLine joins the errors of several fields into one line.
func oneLine(err error) error {
	return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
}

// isInvalid tells a job that can never be accepted from a failure.
func isInvalid(err error) bool {
	_, ok := errors.AsType[*validation.Error](err)
	return ok
}
