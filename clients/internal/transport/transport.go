// Package transport is shared by the clients that use HTTP: its connections are counted and
// carry one call at a time, and it classifies calls without an answer.
package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/headgate/headgate/clients"
)

// MaxDial is the timeout for connecting, and again for the TLS handshake.
const MaxDial = 10 * time.Second

// Dialer returns a dialer for [New].
func Dialer() *net.Dialer {
	return &net.Dialer{Timeout: MaxDial, KeepAlive: 30 * time.Second}
}

// New returns a transport that keeps up to maxIdle idle connections, for less time than servers
// usually do.
func New(maxIdle int, dialer *net.Dialer) *http.Transport {
	// HTTP/2 would send all calls over one connection, and losing it would make the outcome of all
	// of them unknown.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return clients.Counted(conn), nil
		},
		TLSHandshakeTimeout:    MaxDial,
		Protocols:              protocols,
		IdleConnTimeout:        30 * time.Second,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdle,
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// Stay is a value for [http.Client.CheckRedirect] that does not follow redirects.
func Stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// CheckURL parses the base URL of an API: https, or http on this machine, because the key is sent
// to it. Its errors do not repeat the URL.
func CheckURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("it is not a URL")
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return nil, errors.New("it must be http:// or https:// and a host")
	case u.Scheme == "http" && !Loopback(u.Hostname()):
		return nil, errors.New("http:// is for this machine only, because keys and contents would cross the network in the clear: use https://")
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return nil, errors.New("it must not have a user, query or fragment: keys have settings of their own")
	}
	return u, nil
}

// Loopback reports whether a host is this machine.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Cause returns why a call ended: the cause of limited if that has ended, or err.
func Cause(limited context.Context, err error) error {
	if limited.Err() != nil {
		return context.Cause(limited)
	}
	return err
}

// ShortPause is how long a call waits if its worker lacks what a connection needs.
const ShortPause = time.Second

// Short reports whether this process, and not the provider, is the reason why there is no connection:
// it has no more files, ports or buffers.
func Short(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// Lost returns the outcome of a call without an answer:
//
//	the request was sent                    unknown
//	the worker is shutting down             the error of ctx
//	the worker is [Short] of something      postponed: it says nothing about the provider, and
//	                                        another worker may make the call
//	no address, no connection, no TLS, or
//	a timeout before it was sent            unreachable
//
// reason is the text of err, the cause, without secrets. The outcome does not wrap err, because an
// error that matches a context's would be treated as a call that was never made, and be repeated.
func Lost(ctx context.Context, host string, sent bool, err error, reason string) error {
	switch {
	case sent:
		return clients.Unknown(fmt.Errorf("no answer of %s after the request was sent: %s", host, reason))
	case ctx.Err() != nil:
		return fmt.Errorf("call %s: %w", host, ctx.Err())
	case Short(err):
		return clients.PostponeUntil(time.Now().Add(ShortPause), clients.NotCalled(fmt.Errorf("call %s: this worker lacks files or ports: %s", host, reason)))
	}
	return clients.Unreachable(fmt.Errorf("call %s: %s", host, reason))
}

// Clock returns the time by a provider's clock, to which the dates of its answer are relative:
// date is the answer's Date header. Without one it is our own.
func Clock(date string) time.Time {
	if now, err := http.ParseTime(date); err == nil {
		return now
	}
	return time.Now()
}

// Limit ends the body of an answer after n bytes. 101 has no body: what net/http returns as one is the connection, and
// a call that reads from that would wait for as long as the server is silent, beyond its timeout.
func Limit(response *http.Response, n int64) {
	if response.StatusCode == http.StatusSwitchingProtocols {
		response.Body.Close()
		response.Body = http.NoBody
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(response.Body, n), response.Body}
}
