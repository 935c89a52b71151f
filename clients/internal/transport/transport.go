// Package transport has what clients share that speak HTTP: connections that are counted and
// carry one call at a time, and what a call means to which no answer came.
package transport

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/headgate/headgate/clients"
)

// MaxDial is how long a connection may take, and again TLS on it.
const MaxDial = 10 * time.Second

// New returns a transport that keeps up to maxIdle connections for the next calls. Servers
// close connections that are idle for longer than it keeps them.
func New(maxIdle int) *http.Transport {
	// HTTP/2 would put all calls on one connection, whose loss makes the outcome of all
	// of them unknown.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dial,
		TLSHandshakeTimeout:    MaxDial,
		Protocols:              protocols,
		IdleConnTimeout:        30 * time.Second,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdle,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: MaxDial, KeepAlive: 30 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return clients.Counted(conn), nil
}

// Stay is for [http.Client.CheckRedirect]: a redirect is an answer, and is not followed.
func Stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Loopback tells whether a host is this machine.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Cause is why a call ended: its time was up, which limited knows, or err.
func Cause(limited context.Context, err error) error {
	if limited.Err() != nil {
		return context.Cause(limited)
	}
	return err
}

// Lost is what a call without an answer means:
//
//	the request was sent                    unknown
//	the worker ends                         the error of ctx
//	no address, no connection, no TLS, or
//	the time was up before it was sent      unreachable
//
// reason is the text of the cause, without secrets. It is text because an error that
// matches that of a context would be taken for a call that was never made, and be repeated.
func Lost(ctx context.Context, host string, sent bool, reason string) error {
	switch {
	case sent:
		return clients.Unknown(fmt.Errorf("no answer of %s after the request was sent: %s", host, reason))
	case ctx.Err() != nil:
		return fmt.Errorf("call %s: %w", host, ctx.Err())
	}
	return clients.Unreachable(fmt.Errorf("call %s: %s", host, reason))
}
