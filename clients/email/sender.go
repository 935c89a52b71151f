package email

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/clients"
)

// How the connection to the server is secured.
const (
	TLSNone          = "none"          // never, even if the server offers it
	TLSOpportunistic = "opportunistic" // STARTTLS if the server offers it
	TLSMandatory     = "mandatory"     // STARTTLS, or nothing is sent
	TLSImplicit      = "implicit"      // TLS from the first byte
)

// Config configures a [Sender].
type Config struct {
	Host string // name or address of the server; required
	Port int    // 0 means 465 with implicit TLS and 587 otherwise

	// Username and Password authenticate to the server, unless Username is "". Without TLS, the
	// password is sent only to this machine.
	Username, Password string

	// TLS is one of none, opportunistic, mandatory and implicit; "" means mandatory.
	TLS string

	// TLSConfig can have other roots or a client certificate. nil means the system's roots and
	// the server name Host.
	TLSConfig *tls.Config

	// Timeout limits the sending of a message, from dialling to the server's final reply. 0 means
	// 60 s.
	Timeout time.Duration

	// MaxIdle is the max number of idle connections; more can be open while in use. 0 means 256; negative means none.
	MaxIdle int

	// IdleTimeout is how long an idle connection is kept. 0 means 30 s, which is less than the
	// timeout of servers should be.
	IdleTimeout time.Duration

	// MaxPerConn is the max number of messages per connection; servers have a max too, and some
	// just close the connection. 0 means 100.
	MaxPerConn int

	// LocalName is the name of this machine in EHLO. "" means its host name.
	LocalName string
}

// Sender sends mail to one server. It reuses connections.
type Sender struct {
	config Config
	pool   *pool
}

// New returns a Sender without connecting. Its error names all invalid fields.
func New(config Config) (*Sender, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf("email: "+format, args...)) }
	if config.Host == "" || strings.ContainsFunc(config.Host, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		wrong("host: %q is not the name of a server", config.Host)
	}
	config.TLS = cmp.Or(config.TLS, TLSMandatory)
	port := 587
	switch config.TLS {
	case TLSNone, TLSOpportunistic, TLSMandatory:
	case TLSImplicit:
		port = 465
	default:
		wrong("tls: %q is not one of none, opportunistic, mandatory, implicit", config.TLS)
	}
	config.Port = cmp.Or(config.Port, port)
	if config.Port < 1 || config.Port > 65535 {
		wrong("port: %d is not in the range 1 to 65535", config.Port)
	}
	if config.Timeout < 0 || config.IdleTimeout < 0 || config.MaxPerConn < 0 {
		wrong("times and numbers must not be negative")
	}
	if config.LocalName == "" {
		config.LocalName, _ = os.Hostname()
	}
	config.LocalName = cmp.Or(config.LocalName, "localhost")
	if strings.ContainsFunc(config.LocalName, func(c rune) bool { return c <= ' ' || c > '~' }) {
		wrong("local name: %q is not a host name", config.LocalName)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	config.Timeout = cmp.Or(config.Timeout, time.Minute)
	config.MaxIdle = cmp.Or(config.MaxIdle, 256)
	config.IdleTimeout = cmp.Or(config.IdleTimeout, 30*time.Second)
	config.MaxPerConn = cmp.Or(config.MaxPerConn, 100)
	tlsConfig := &tls.Config{}
	if config.TLSConfig != nil {
		tlsConfig = config.TLSConfig.Clone()
	}
	tlsConfig.ServerName = cmp.Or(tlsConfig.ServerName, config.Host)
	config.TLSConfig = tlsConfig
	return &Sender{config: config, pool: newPool(config)}, nil
}

// Close closes idle connections. Messages in flight continue. Later messages can still be sent,
// each over its own connection.
func (s *Sender) Close() { s.pool.close() }

// Send sends the message. If the error is nil, the server has accepted it for every recipient;
// otherwise see the table at outcome.
//
// If ctx is cancelled before the message was sent, the error wraps ctx's. If it is cancelled
// later, the outcome is unknown, as after a lost connection.
func (s *Sender) Send(ctx context.Context, call clients.Call, m Message) error {
	if err := m.Validate(); err != nil {
		return clients.Permanent(clients.NotCalled(err))
	}
	e, err := pack(call, m)
	if err != nil {
		return clients.Permanent(clients.NotCalled(err))
	}
	// The cause distinguishes a timeout from a shutdown of the worker.
	limited, cancel := context.WithTimeoutCause(ctx, s.config.Timeout, fmt.Errorf("gave up after %v", s.config.Timeout))
	defer cancel()

	if c := s.pool.take(); c != nil {
		err := s.over(limited, c, e)
		if !stale(err) || limited.Err() != nil {
			return s.judge(ctx, limited, err)
		}
	}
	c, err := dial(limited, s.config)
	if err != nil {
		return s.judge(ctx, limited, err)
	}
	return s.judge(ctx, limited, s.over(limited, c, e))
}

// over sends over a connection, and then returns it to the pool or closes it.
func (s *Sender) over(ctx context.Context, c *conn, e *envelope) error {
	err := c.during(ctx, func() error { return c.send(e) })
	if usable(err) && (err == nil || c.during(ctx, c.client.Reset) == nil) {
		s.pool.put(c)
	} else {
		c.raw.Close() // without QUIT, since go-mail could end a message with it
	}
	return err
}

func (s *Sender) judge(ctx, limited context.Context, err error) error {
	if err == nil {
		return nil
	}
	if _, spoke := errors.AsType[*textproto.Error](err); !spoke {
		at := stepOf(err)
		if ctx.Err() != nil && at != stepAnswer {
			return fmt.Errorf("mail by %s: %w", s.config.Host, ctx.Err())
		}
		if limited.Err() != nil {
			err = &stepError{at, context.Cause(limited)}
		}
	}
	return outcome(s.config.Host, err, s.config.secrets()...)
}

// secrets returns the password and the forms in which it is sent.
func (c Config) secrets() []string {
	if c.Password == "" {
		return nil
	}
	encode := base64.StdEncoding.EncodeToString
	return []string{encode([]byte("\x00" + c.Username + "\x00" + c.Password)), encode([]byte(c.Password)), c.Password}
}

func (c Config) address() string { return net.JoinHostPort(c.Host, strconv.Itoa(c.Port)) }
