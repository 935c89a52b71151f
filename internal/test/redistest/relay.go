package redistest

import (
	"context"
	"maps"
	"net"
	"strings"
	"sync"
	"time"
)

// Relay is a second address of a server, for programs that run as processes: what goes through it
// can be slowed down or lost.
type Relay struct {
	listener net.Listener
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	to       string
	running  sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	delay  time.Duration
	lose   func(kind string) bool
	lost   int
	seen   map[string]int    // commands, by their kind
	bodies map[string]string // scripts, by their hash
	name   func(script string) string
}

// Relay starts a relay, which ends with the test. dial connects to the server, such as
// [Clock.Dial]; nil means directly. name returns the name of a script; nil means that all scripts
// are one kind of command.
func (s *Server) Relay(dial func(ctx context.Context, network, addr string) (net.Conn, error), name func(script string) string) *Relay {
	s.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	if name == nil {
		name = func(string) string { return "script" }
	}
	r := &Relay{listener: listener, dial: dial, to: s.Addr(), conns: map[net.Conn]struct{}{}, seen: map[string]int{}, bodies: map[string]string{}, name: name}
	r.running.Go(r.accept)
	s.t.Cleanup(r.close)
	return r
}

// URL returns the relay's redis:// URL.
func (r *Relay) URL() string { return "redis://" + r.listener.Addr().String() }

// Delay makes each request arrive later by so much.
func (r *Relay) Delay(by time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = by
}

// Lose asks for each command, by its kind, whether its reply is lost: the server executes it, but
// the client's connection breaks. The kind is the name of a command, or of its script. nil ends it.
func (r *Relay) Lose(lose func(kind string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lose = lose
}

// Lost returns how many replies were lost.
func (r *Relay) Lost() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// Seen returns how many commands of each kind were sent.
func (r *Relay) Seen() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.seen)
}

func (r *Relay) close() {
	_ = r.listener.Close()
	r.mu.Lock()
	for conn := range r.conns {
		_ = conn.Close()
	}
	r.conns = nil
	r.mu.Unlock()
	r.running.Wait()
}

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.running.Go(func() { r.serve(client) })
	}
}

// keep remembers a connection to be closed with the relay.
func (r *Relay) keep(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns == nil {
		_ = conn.Close()
		return false
	}
	r.conns[conn] = struct{}{}
	return true
}

func (r *Relay) drop(conn net.Conn) {
	_ = conn.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, conn)
}

func (r *Relay) serve(client net.Conn) {
	if !r.keep(client) {
		return
	}
	defer r.drop(client)
	server, err := r.dial(context.Background(), "tcp", r.to)
	if err != nil || !r.keep(server) {
		return // as from a server that is away
	}
	defer r.drop(server)
	var losing sync.Once
	lost := make(chan struct{})
	var replies sync.WaitGroup
	defer replies.Wait()
	replies.Go(func() {
		defer client.Close()
		defer server.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if err != nil {
				return
			}
			select {
			case <-lost:
				r.mu.Lock()
				r.lost++
				r.mu.Unlock()
				return
			default:
			}
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
	})
	defer server.Close()
	var rest []byte // of an incomplete command
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		rest = append(rest, buffer[:n]...)
		for {
			words, length := readCommand(rest)
			if length == 0 {
				break
			}
			rest = rest[length:]
			if r.meet(words) {
				losing.Do(func() { close(lost) })
			}
		}
		r.mu.Lock()
		delay := r.delay
		r.mu.Unlock()
		time.Sleep(delay) // the fault itself
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// meet counts a command, and reports whether its reply is lost.
func (r *Relay) meet(words []string) (lost bool) {
	kind := strings.ToLower(words[0])
	r.mu.Lock()
	defer r.mu.Unlock()
	switch kind {
	case "eval":
		r.bodies[hash(words[1])] = words[1]
		kind = r.name(words[1])
	case "evalsha":
		if body, known := r.bodies[words[1]]; known {
			kind = r.name(body)
		} else {
			kind = "script"
		}
	}
	r.seen[kind]++
	return r.lose != nil && r.lose(kind)
}
