package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/inspect"
)

// printFaults shows what scripts could not understand, and what to do about it.
func printFaults(out io.Writer, name string, faults []inspect.Fault) error {
	if len(faults) == 0 {
		return nil
	}
	fmt.Fprintf(out, "queue %s: %s. Scripts found data in Redis that they cannot understand, and left it as it is:\n", name, counted(len(faults), "fault"))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range faults {
		since := "-"
		if !f.At.IsZero() {
			since = f.At.Local().Format("2006-01-02 15:04:05")
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", since, printable(f.What), printable(f.Reason))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, "Repair or delete what is named: its jobs wait until then. Faults are forgotten an hour after the latest.")
	return err
}

// faultyError is why a queue could not be read: its faults may say why.
type faultyError struct {
	error
	queue  string
	faults []inspect.Fault
}

func (e faultyError) Unwrap() error { return e.error }

// withFaults adds its faults to the error of a queue that Redis could not read.
func withFaults(ctx context.Context, client redis.UniversalClient, name string, unread error) error {
	if _, answered := errors.AsType[redis.Error](unread); !answered {
		return unread
	}
	faults, err := inspect.Faults(ctx, client, name)
	if err != nil {
		return unread
	}
	return faultyError{unread, name, faults}
}
