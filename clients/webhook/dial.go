package webhook

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"code.dny.dev/ssrf"

	"github.com/headgate/headgate/clients"
	shared "github.com/headgate/headgate/clients/internal/transport"
)

// publicOnly rejects addresses that are not public internet addresses.
var publicOnly = ssrf.New(ssrf.WithAnyPort()).Safe

// dialer makes counted connections.
type dialer struct {
	net net.Dialer
	tls *tls.Config
}

func newDialer(config Config) *dialer {
	d := &dialer{net: net.Dialer{Timeout: shared.MaxDial, KeepAlive: 30 * time.Second}, tls: &tls.Config{}}
	if config.TLS != nil {
		d.tls = config.TLS.Clone()
	}
	d.tls.NextProtos = []string{"http/1.1"}
	if !config.AllowPrivate {
		// Check the address that is dialled, not the name, which may resolve to another address
		// the second time.
		d.net.Control = publicOnly
	}
	return d
}

func (d *dialer) plain(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.net.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return clients.Counted(conn), nil
}

func (d *dialer) secure(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.net.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	config := d.tls
	if config.ServerName == "" {
		config = config.Clone()
		if config.ServerName, _, err = net.SplitHostPort(address); err != nil {
			conn.Close()
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, shared.MaxDial)
	defer cancel()
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return clients.Counted(secure), nil
}
