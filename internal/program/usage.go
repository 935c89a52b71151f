// Package program is what the commands of our programs have in common: how they start
// and end, and the subcommands of every worker program.
package program

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/settings"
)

// UsageError is a mistake in how a command was called, in its settings or in its input. The
// program exits with 2.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// ExitCode is the program's exit code.
func (e *UsageError) ExitCode() int { return 2 }

// ExitCode returns the exit code of a program that ends with err: 0 if it is nil, the one
// that the error names with a method ExitCode, or 1.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	if coded, ok := errors.AsType[interface {
		error
		ExitCode() int
	}](err); ok {
		return coded.ExitCode()
	}
	return 1
}

// NoArgs rejects arguments as a usage error.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return &UsageError{fmt.Errorf("%s takes no arguments, got %.60q", cmd.CommandPath(), args[0])}
	}
	return nil
}

// Read reads the settings of a command from the environment and from flags, and checks them.
// The error is a [UsageError].
func Read[C interface{ Validate() error }](cmd *cobra.Command) (C, error) {
	var c C
	err := settings.Read(cmd, &c)
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		return *new(C), &UsageError{err}
	}
	return c, nil
}
