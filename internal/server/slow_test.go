package server

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener of connections that exist in memory alone, for a clock that does not wait.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "in memory"} }

func (p pipes) dial() net.Conn {
	theirs, ours := net.Pipe()
	p <- theirs
	return ours
}

// A browser opens connections before it has a request for each, and may be slow to send it; a stranger
// that only keeps connections open cannot have many for long.
func TestConnectionsWithoutARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		listener, ended := make(pipes), make(chan error, 1)
		s := &Server{config: Config{Logger: slog.New(slog.DiscardHandler)}}
		go func() {
			ended <- s.serve(ctx, listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), nil)
		}()
		slow, silent := listener.dial(), listener.dial()
		opened := time.Now()
		time.Sleep(20 * time.Second)
		if _, err := io.WriteString(slow, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatalf("20 s after the connection was opened: %v", err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(slow), nil)
		if err != nil || answer.StatusCode != http.StatusNoContent {
			t.Fatalf("20 s after the connection was opened: %v, %v", answer, err)
		}
		if _, err := silent.Read(make([]byte, 1)); err != io.EOF || time.Since(opened) != 30*time.Second {
			t.Errorf("without a request: %v after %v", err, time.Since(opened))
		}
		slow.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
