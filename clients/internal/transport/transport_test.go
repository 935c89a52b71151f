package transport

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/clients"
)

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
