package main

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate/headgate/internal/test/redistest"
)

// TestRunEndsWithItsHTTPServer: a worker without its API, metrics and probes does
// not go on.
func TestRunEndsWithItsHTTPServer(t *testing.T) {
	addr := quietly(t, redistest.Start(t).URL(), "queues: {webhook: {kinds: [webhook]}}")
	_, ended := started(t, "run")
	untilReady(t)
	breakListener(t, addr)
	if errText := endOf(t, ended); !strings.Contains(errText, "serve "+addr) {
		t.Errorf("it ended with %q; want the error of the HTTP server", errText)
	}
}

func TestDevEndsWithItsPage(t *testing.T) {
	addr := quietly(t, "redis://none", "")
	_, ended := started(t, "dev", "--miniredis", "--http", addr)
	untilReady(t)
	breakListener(t, addr)
	if errText := endOf(t, ended); !strings.Contains(errText, "serve "+addr) {
		t.Errorf("it ended with %q; want the error of the HTTP server", errText)
	}
}

// breakListener makes the socket of this process that listens at an address fail.
func breakListener(t *testing.T, addr string) {
	t.Helper()
	_, port, _ := strings.Cut(addr, ":")
	for fd := range 1024 {
		socket, err := syscall.Getsockname(fd)
		if err != nil {
			continue
		}
		listens, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN)
		ip, ok := socket.(*syscall.SockaddrInet4)
		if err != nil || listens == 0 || !ok || port != strconv.Itoa(ip.Port) {
			continue
		}
		if err := syscall.Shutdown(fd, syscall.SHUT_RDWR); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("nobody listens at %s", addr)
}
