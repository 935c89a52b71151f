package redistest

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Clock is the network between a client and a server, and lets a test set the server's clock. Its
// Dial is the client's dialer. [Clock.Step] sets the clock as seen by the client: in answers to
// TIME and in redis.call('TIME'), in this spelling, in the client's scripts. Clients that must see
// the same clock share a Clock. The zero Clock shows the server's own time.
//
// It changes commands in transit, not answers, so it works with any server. Key expiry uses the
// server's own clock, which is not changed.
type Clock struct {
	mu     sync.Mutex
	ahead  time.Duration     // relative to the server's own clock
	still  time.Time         // when it was stopped; zero: it runs
	bodies map[string]string // scripts, by their original hash
	loaded map[string]string // hashes at the server of the scripts sent since the last step
}

// Step moves the clock forward, or back if by is negative.
func (c *Clock) Step(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += by
	clear(c.loaded)
}

// Stop stops the clock: from now on only Step moves it, so the time that the test takes does not count.
func (c *Clock) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.still = time.Now()
	clear(c.loaded)
}

// Now returns the time on this clock, if the server runs on this machine.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.still.IsZero() {
		return c.still.Add(c.ahead)
	}
	return time.Now().Add(c.ahead)
}

// Dial connects.
func (c *Clock) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	inner, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &clockConn{Conn: inner, clock: c}, nil
}

type clockConn struct {
	net.Conn
	clock *Clock
	rest  []byte // of an incomplete command
}

func (c *clockConn) Write(p []byte) (int, error) {
	c.rest = append(c.rest, p...)
	var out []byte
	for {
		words, n := readCommand(c.rest)
		if n == 0 {
			break
		}
		out = appendCommand(out, c.clock.rewrite(words))
		c.rest = c.rest[n:]
	}
	if _, err := c.Conn.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// readCommand returns the first command of b and its length, or 0 if it is incomplete.
func readCommand(b []byte) (words []string, n int) {
	number := func(mark byte) (int, bool) {
		end := bytes.Index(b[n:], []byte("\r\n"))
		if end < 1 {
			return 0, false
		}
		value, err := strconv.Atoi(string(b[n+1 : n+end]))
		if b[n] != mark || err != nil {
			panic(fmt.Sprintf("redistest: %q is not a command of a client", b[n:n+end]))
		}
		n += end + 2
		return value, true
	}
	count, ok := number('*')
	if !ok {
		return nil, 0
	}
	for range count {
		length, ok := number('$')
		if !ok || len(b) < n+length+2 {
			return nil, 0
		}
		words = append(words, string(b[n:n+length]))
		n += length + 2
	}
	return words, n
}

func appendCommand(b []byte, words []string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(words))
	for _, word := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(word), word)
	}
	return b
}

// noScript is the hash of no script: the server answers that it does not know it, and the client
// sends the script itself.
var noScript = strings.Repeat("0", 40)

func (c *Clock) rewrite(words []string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch strings.ToLower(words[0]) {
	case "time":
		return []string{"eval", c.shifted("return redis.call('TIME')"), "0"}
	case "eval":
		return c.send(words, hash(words[1]), words[1])
	case "evalsha":
		body, known := c.bodies[words[1]]
		switch {
		case !known:
			words[1] = noScript // the server may have the unchanged script from other clients
		case c.loaded[words[1]] == "":
			return c.send(words, words[1], body)
		default:
			words[1] = c.loaded[words[1]]
		}
	}
	return words
}

// send returns the changed form of a command that runs a script, and records the script.
func (c *Clock) send(words []string, name, body string) []string {
	if c.bodies == nil {
		c.bodies, c.loaded = map[string]string{}, map[string]string{}
	}
	text := c.shifted(body)
	c.bodies[name], c.loaded[name] = body, hash(text)
	words[0], words[1] = "eval", text
	return words
}

func hash(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// shifted returns a script with a shifted TIME.
func (c *Clock) shifted(body string) string {
	micros, ahead := "time[1] * 1000000 + time[2]", c.ahead
	if !c.still.IsZero() {
		micros, ahead = "0", time.Duration(c.still.Add(c.ahead).UnixNano())
	}
	return strings.ReplaceAll(body, "redis.call('TIME')", fmt.Sprintf(`(function()
local time = redis.call('TIME')
local micros = %s + %d
local second = math.floor(micros / 1000000)
return {string.format('%%.0f', second), string.format('%%.0f', micros - second * 1000000)}
end)()`, micros, ahead.Microseconds()))
}
