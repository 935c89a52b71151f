package server

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificate is a pair of files that is read again when one of them changes, as
// those who renew certificates expect.
type certificate struct {
	certFile, keyFile string
	logger            *slog.Logger

	mu     sync.Mutex
	pair   *tls.Certificate
	stamps [2]fileStamp
	looked time.Time
}

type fileStamp struct {
	size int64
	at   time.Time
}

func stampOf(path string) fileStamp {
	info, err := os.Stat(path)
	if err != nil {
		return fileStamp{}
	}
	return fileStamp{info.Size(), info.ModTime()}
}

func openCertificate(certFile, keyFile string, logger *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, logger: logger}
	if err := c.read(); err != nil {
		return nil, fmt.Errorf("HEADGATE_TLS_CERT, HEADGATE_TLS_KEY: %w", err)
	}
	return c, nil
}

func (c *certificate) read() error {
	c.stamps, c.looked = [2]fileStamp{stampOf(c.certFile), stampOf(c.keyFile)}, time.Now()
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	c.pair = &pair
	return nil
}

// lookEvery is how often the files are looked at, at most.
const lookEvery = time.Second

// get is the certificate for a handshake. Files that do not fit together, as
// between the writing of one and the other, leave the one before in force.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < lookEvery {
		return c.pair, nil
	}
	c.looked = time.Now()
	if now := [2]fileStamp{stampOf(c.certFile), stampOf(c.keyFile)}; now != c.stamps {
		if err := c.read(); err != nil {
			c.logger.Error("the certificate was not taken; the one before stays in force", "error", err)
		} else {
			c.logger.Info("the certificate was read again", "file", c.certFile)
		}
	}
	return c.pair, nil
}
