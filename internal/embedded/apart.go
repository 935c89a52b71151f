package embedded

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// patience is how long the process may take to start, and to end.
const patience = 10 * time.Second

// failed begins the line of a process that could not start miniredis.
const failed = "failed: "

// Serve runs miniredis on a port of 127.0.0.1, 0 for a free one, until the input ends. It is what the command of
// [Options].Apart does, with its standard input and output.
func Serve(in io.Reader, out io.Writer, port int) {
	server, err := startMiniredis(port)
	if err != nil {
		fmt.Fprintf(out, "%s%v\n", failed, err)
		return
	}
	defer server.Close()
	fmt.Fprintln(out, server.addr)
	_, _ = io.Copy(io.Discard, in) // however it ends
}

// startApart starts miniredis in a process that ends with this one.
func startApart(cmd *exec.Cmd, err error) (*Redis, error) {
	if err != nil {
		return nil, fmt.Errorf("embedded miniredis: %w", err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("embedded miniredis: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("embedded miniredis: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("embedded miniredis: %w", err)
	}
	kill := func() { _ = cmd.Process.Kill() }
	end := sync.OnceFunc(func() {
		_ = in.Close()
		late := time.AfterFunc(patience, kill)
		defer late.Stop()
		_ = cmd.Wait()
	})
	late := time.AfterFunc(patience, kill)
	line, _ := bufio.NewReader(out).ReadString('\n')
	late.Stop()
	line = strings.TrimSpace(line)
	if reason, ok := strings.CutPrefix(line, failed); ok {
		end()
		return nil, errors.New(reason)
	}
	if _, _, err := net.SplitHostPort(line); err != nil {
		end()
		return nil, fmt.Errorf("embedded miniredis: its process printed %q instead of its address", line)
	}
	return &Redis{addr: line, kind: "miniredis", close: end}, nil
}
