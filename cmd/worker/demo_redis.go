package main

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/internal/settings"
)

// apart returns the command that serves miniredis in a process of its own. In the demo's own process, its garbage would delay
// calls by up to 15 ms every two seconds, and providers tolerate 5. Where there is nice, the processes that make calls
// go first.
func apart(port int) (*exec.Cmd, error) {
	cmd, err := itself("miniredis", strconv.Itoa(port))
	if err != nil {
		return nil, err
	}
	if nice, err := exec.LookPath("nice"); err == nil {
		cmd.Path, cmd.Args = nice, append([]string{nice, "-n", "19", cmd.Path}, cmd.Args[1:]...)
	}
	return cmd, nil
}

// miniredisCommand is what [apart] starts.
func miniredisCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "miniredis PORT",
		Short:  "Serve an imitation of Redis until stdin ends",
		Hidden: true, // dev starts it
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			port, err := strconv.Atoi(args[0])
			if err != nil {
				return &program.UsageError{Err: err}
			}
			settings.Steady()
			runtime.GOMAXPROCS(1) // the others are for the calls, also while it collects garbage
			embedded.Serve(cmd.InOrStdin(), cmd.OutOrStdout(), port)
			return nil
		},
	}
}

// itself returns a command of this program in a process of its own.
func itself(args ...string) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, args...)
	cmd.Stderr = os.Stderr
	return cmd, nil
}
