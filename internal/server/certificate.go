package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/filewatch"
)

// certificate is a pair of files that is read again when one of them changes, as
// those who renew certificates expect.
type certificate struct {
	certFile, keyFile string
	logger            *slog.Logger
	pair              atomic.Pointer[tls.Certificate]
	seen              filewatch.Version
}

func openCertificate(certFile, keyFile string, logger *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, logger: logger}
	if err := c.read(); err != nil {
		return nil, fmt.Errorf("HEADGATE_TLS_CERT, HEADGATE_TLS_KEY: %w", err)
	}
	return c, nil
}

func (c *certificate) read() error {
	c.seen = filewatch.Look(c.certFile, c.keyFile)
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err == nil {
		c.pair.Store(&pair)
	}
	return err
}

// Run reads the files again when they have changed, until ctx is done. Files that do not
// fit together, as between the writing of one and the other, leave the pair before in force.
func (c *certificate) Run(ctx context.Context) error {
	filewatch.Run(ctx, time.Second, c.seen, func() (filewatch.Version, error) {
		err := c.read()
		if err == nil {
			c.logger.Info("the certificate was read again", "file", c.certFile)
		}
		return c.seen, err
	}, func(err error) {
		c.logger.Error("the certificate was not taken; the one before stays in force", "error", err)
	})
	return nil
}

// get is the certificate for a handshake.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.pair.Load(), nil }
