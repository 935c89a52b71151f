package email

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// script is a mail server that answers as it was told. Its keys are verbs, or
// "." for the end of a message and "hello" for the greeting; its values are the
// replies. "close" closes the connection instead, "hang" says nothing.
type script struct {
	listener net.Listener
	serving  sync.WaitGroup
	hung     chan struct{} // gets a value for each "hang"

	mu      sync.Mutex
	replies map[string]string
	once    map[string]string // the same, each for one time
	conns   []net.Conn
	heard   []string // verbs
	mails   []string
}

func newScript(t testing.TB, replies map[string]string) *script {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &script{listener: listener, replies: replies, hung: make(chan struct{}, 10)}
	s.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, conn)
			s.mu.Unlock()
			s.serving.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		s.hangUp()
		s.serving.Wait()
	})
	return s
}

func (s *script) config() Config {
	host, port, _ := net.SplitHostPort(s.listener.Addr().String())
	n, _ := strconv.Atoi(port)
	return Config{Host: host, Port: n, TLS: TLSNone, LocalName: "client.invalid"}
}

// hangUp closes all connections, as a server does after a while.
func (s *script) hangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.conns {
		conn.Close()
	}
}

func (s *script) set(verb, reply string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies[verb] = reply
}

func (s *script) setOnce(verb, reply string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.once = map[string]string{verb: reply}
}

func (s *script) said() (verbs string, conns int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.heard, " "), len(s.conns)
}

func (s *script) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	answer := func(verb, otherwise string) bool {
		s.mu.Lock()
		s.heard = append(s.heard, verb)
		reply, told := s.once[verb]
		if told {
			delete(s.once, verb)
		} else {
			reply, told = s.replies[verb]
		}
		s.mu.Unlock()
		if !told {
			reply = otherwise
		}
		switch reply {
		case "close":
			return false
		case "hang":
			s.hung <- struct{}{}
			io.Copy(io.Discard, r)
			return false
		}
		_, err := io.WriteString(conn, reply+"\r\n")
		return err == nil && !strings.HasPrefix(reply, "421")
	}
	if !answer("hello", "220 script") {
		return
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		verb, _, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(line)), " ")
		otherwise := "250 ok"
		switch verb {
		case "DATA":
			otherwise = "354 go"
		case "QUIT":
			otherwise = "221 bye"
		}
		if !answer(verb, otherwise) {
			return
		}
		s.mu.Lock()
		refused := verb != "DATA" || s.replies[verb] != ""
		s.mu.Unlock()
		if refused {
			continue
		}
		var mail strings.Builder
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if line == ".\r\n" {
				break
			}
			mail.WriteString(line)
		}
		s.mu.Lock()
		s.mails = append(s.mails, mail.String())
		s.mu.Unlock()
		if !answer(".", "250 taken") {
			return
		}
	}
}
