package main

import (
	"errors"
	"strings"
)

// oneLine joins the errors of several fields into one line.
func oneLine(err error) error {
	return errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
}
