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
)

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
	end := sync.OnceFunc(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	line, _ := bufio.NewReader(out).ReadString('\n')
	line = strings.TrimSpace(line)
	if reason, ok := strings.CutPrefix(line, failed); ok {
		end()
		return nil, errors.New(reason)
	}
	if _, _, err := net.SplitHostPort(line); err != nil {
		end()
		return nil, fmt.Errorf("embedded miniredis: its process said %q, not where it is", line)
	}
	return &Redis{addr: line, kind: "miniredis", close: end}, nil
}
