package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/clients"
)

// TestOtherProtocol: a server that switches to another protocol is not read from, because it may stay silent.
func TestOtherProtocol(t *testing.T) {
	ours, theirs := net.Pipe()
	response := &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: ours}
	Limit(response, 10)
	if body, err := io.ReadAll(response.Body); len(body) > 0 || err != nil {
		t.Errorf("%q, %v", body, err)
	}
	if _, err := theirs.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the connection is open: %v", err)
	}
}

// TestShortWorker: that this process has no more files says nothing about a provider.
func TestShortWorker(t *testing.T) {
	dial := func(errno syscall.Errno) error {
		return &url.Error{Op: "Post", URL: "http://a.example", Err: &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", errno)}}
	}
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS} {
		err := Lost(t.Context(), "a.example", false, dial(errno), "socket: "+errno.Error())
		postponed, ok := errors.AsType[*clients.PostponedError](err)
		if _, none := errors.AsType[*clients.NotCalledError](err); !ok || !none || time.Until(postponed.Until) > ShortPause {
			t.Errorf("%v: %#v", errno, err)
		}
	}
	for _, sent := range []bool{false, true} {
		err := Lost(t.Context(), "a.example", sent, fmt.Errorf("%w", dial(syscall.ECONNREFUSED)), "refused")
		if _, down := errors.AsType[*clients.UnavailableError](err); down == sent {
			t.Errorf("refused, sent %v: %v", sent, err)
		}
	}
}
