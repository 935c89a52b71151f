package webhook

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"code.dny.dev/ssrf"
)

// forbidden are URLs that lead into the network of the worker. PORT is that of a
// server on the loopback addresses; names resolve to what stands beside them.
var forbidden = []struct {
	what    string
	url     string
	resolve []string
	arrives bool // at that server, when private addresses are allowed
}{
	// Addresses, each in its plain spelling.
	{"loopback", "http://127.0.0.1:PORT/", nil, true},
	{"loopback, last", "http://127.255.255.254:PORT/", nil, false},
	{"unspecified", "http://0.0.0.0:PORT/", nil, true},
	{"this network", "http://0.1.2.3:PORT/", nil, false},
	{"private 10", "http://10.0.0.1:PORT/", nil, false},
	{"private 172.16", "http://172.16.0.1:PORT/", nil, false},
	{"private 172.31", "http://172.31.255.255:PORT/", nil, false},
	{"private 192.168", "http://192.168.0.1:PORT/", nil, false},
	{"carrier NAT", "http://100.64.0.1:PORT/", nil, false},
	{"carrier NAT, last", "http://100.127.255.254:PORT/", nil, false},
	{"metadata of Alibaba", "http://100.100.100.200:PORT/", nil, false},
	{"link-local", "http://169.254.0.1:PORT/", nil, false},
	{"metadata", "http://169.254.169.254/latest/meta-data/", nil, false},
	{"metadata of ECS", "http://169.254.170.2/v2/credentials/", nil, false},
	{"protocol assignments", "http://192.0.0.192:PORT/", nil, false}, // Oracle's metadata
	{"documentation", "http://192.0.2.1:PORT/", nil, false},
	{"benchmarking", "http://198.18.0.1:PORT/", nil, false},
	{"multicast", "http://224.0.0.1:PORT/", nil, false},
	{"multicast, UPnP", "http://239.255.255.250:1900/", nil, false},
	{"reserved", "http://240.0.0.1:PORT/", nil, false},
	{"broadcast", "http://255.255.255.255:PORT/", nil, false},
	{"IPv6 loopback", "http://[::1]:PORT/", nil, false},
	{"IPv6 loopback, long", "http://[0000:0000:0000:0000:0000:0000:0000:0001]:PORT/", nil, false},
	{"IPv6 unspecified", "http://[::]:PORT/", nil, false},
	{"IPv6 link-local", "http://[fe80::1]:PORT/", nil, false},
	{"IPv6 site-local", "http://[fec0::1]:PORT/", nil, false},
	{"IPv6 unique local", "http://[fd12:3456:789a::1]:PORT/", nil, false},
	{"IPv6 metadata", "http://[fd00:ec2::254]/latest/meta-data/", nil, false},
	{"IPv6 multicast", "http://[ff02::1]:PORT/", nil, false},
	{"IPv6 documentation", "http://[2001:db8::1]:PORT/", nil, false},
	{"IPv6 discard", "http://[100::1]:PORT/", nil, false},

	// IPv4 inside of IPv6.
	{"mapped", "http://[::ffff:127.0.0.1]:PORT/", nil, true},
	{"mapped, hex", "http://[::ffff:7f00:1]:PORT/", nil, true},
	{"mapped metadata", "http://[::ffff:169.254.169.254]/", nil, false},
	{"mapped metadata, hex", "http://[::ffff:a9fe:a9fe]/", nil, false},
	{"mapped private", "http://[::ffff:10.0.0.1]:PORT/", nil, false},
	{"compatible", "http://[::127.0.0.1]:PORT/", nil, false},
	{"compatible metadata", "http://[::a9fe:a9fe]/", nil, false},
	{"translated", "http://[::ffff:0:127.0.0.1]:PORT/", nil, false},
	{"NAT64", "http://[64:ff9b::127.0.0.1]:PORT/", nil, false},
	{"NAT64 metadata", "http://[64:ff9b::a9fe:a9fe]/", nil, false},
	{"NAT64 of one's own", "http://[64:ff9b:1::7f00:1]:PORT/", nil, false},
	{"6to4", "http://[2002:7f00:1::]:PORT/", nil, false},
	{"6to4 metadata", "http://[2002:a9fe:a9fe::1]/", nil, false},
	{"Teredo", "http://[2001:0:4136:e378:8000:63bf:80ff:fffe]:PORT/", nil, false},

	// Zones.
	{"zone", "http://[fe80::1%25lo]:PORT/", nil, false},
	{"zone of a loopback", "http://[::1%25lo]:PORT/", nil, false},
	{"zone of a public address", "http://[2606:4700::1111%25eth0]:PORT/", nil, false},

	// Spellings of 127.0.0.1 and 169.254.169.254 that some resolvers know.
	{"short", "http://127.1:PORT/", []string{"127.0.0.1"}, false},
	{"shortest", "http://0:PORT/", []string{"0.0.0.0"}, false},
	{"decimal", "http://2130706433:PORT/", []string{"127.0.0.1"}, false},
	{"decimal metadata", "http://2852039166/", []string{"169.254.169.254"}, false},
	{"octal", "http://0177.0.0.1:PORT/", []string{"127.0.0.1"}, false},
	{"octal metadata", "http://0251.0376.0251.0376/", []string{"169.254.169.254"}, false},
	{"octal, one number", "http://025177524776/", []string{"169.254.169.254"}, false},
	{"hex", "http://0x7f.0x0.0x0.0x1:PORT/", []string{"127.0.0.1"}, false},
	{"hex, one number", "http://0x7f000001:PORT/", []string{"127.0.0.1"}, false},
	{"hex metadata", "http://0xA9FEA9FE/", []string{"169.254.169.254"}, false},
	{"hex metadata, dotted", "http://0xa9.0xfe.0xa9.0xfe/", []string{"169.254.169.254"}, false},
	{"mixed", "http://169.0xfe.43518/", []string{"169.254.169.254"}, false},
	{"overflow", "http://383.0.0.1:PORT/", []string{"127.0.0.1"}, false},
	{"trailing dot", "http://127.0.0.1.:PORT/", []string{"127.0.0.1"}, false},
	{"leading zeros", "http://127.000.000.001:PORT/", []string{"127.0.0.1"}, false},

	// Digits of other scripts.
	{"circled digits", "http://①②⑦.⓪.⓪.①:PORT/", []string{"127.0.0.1"}, true},
	{"fullwidth digits", "http://１２７.０.０.１:PORT/", []string{"127.0.0.1"}, true},
	{"ideographic dots", "http://127。0。0。1:PORT/", []string{"127.0.0.1"}, true},
	{"circled metadata", "http://①⑥⑨.②⑤④.①⑥⑨.②⑤④/", []string{"169.254.169.254"}, false},
	{"circled letters", "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:PORT/", []string{"127.0.0.1"}, true},

	// Names.
	{"localhost", "http://localhost:PORT/", []string{"127.0.0.1"}, true},
	{"LOCALHOST", "http://LocalHost:PORT/", []string{"127.0.0.1"}, true},
	{"localhost.", "http://localhost.:PORT/", []string{"127.0.0.1"}, true},
	{"below localhost", "http://hooks.localhost:PORT/", []string{"127.0.0.1"}, true},
	{"resolves to loopback", "http://loopback.example:PORT/", []string{"127.0.0.1"}, true},
	{"resolves to IPv6 loopback", "http://loopback6.example:PORT/", []string{"::1"}, false},
	{"resolves to private", "http://intranet.example:PORT/", []string{"10.0.0.5"}, false},
	{"resolves to metadata", "http://metadata.google.internal/computeMetadata/v1/", []string{"169.254.169.254"}, false},
	{"resolves to mapped", "http://mapped.example:PORT/", []string{"::ffff:127.0.0.1"}, true},
	{"resolves to NAT64", "http://nat64.example:PORT/", []string{"64:ff9b::7f00:1"}, false},
	{"resolves to many", "http://many.example:PORT/", []string{"127.0.0.1", "10.0.0.1", "::1"}, true},
	{"with a trailing dot", "http://loopback.example.:PORT/", []string{"127.0.0.1"}, true},
	{"address in a name", "http://127.0.0.1.nip.example:PORT/", []string{"127.0.0.1"}, true},

	// User and password, and what is taken for them.
	{"user", "http://example.com@127.0.0.1:PORT/", nil, false},
	{"user and password", "http://example.com:80@127.0.0.1:PORT/", nil, false},
	{"two at signs", "http://a@example.com@127.0.0.1:PORT/", nil, false},
	{"empty user", "http://@127.0.0.1:PORT/", nil, false},
	{"fragment", "http://127.0.0.1:PORT#@example.com/", nil, true},
	{"query", "http://127.0.0.1:PORT?@example.com/", nil, true},
	{"backslash", "http://example.com\\@127.0.0.1:PORT/", nil, false},
	{"escaped dot", "http://127%2e0.0.1:PORT/", nil, false},
	{"line break", "http://127.0.0.1:PORT\r\n.example.com/", nil, false},

	// Ports, schemes and sockets.
	{"no port", "http://127.0.0.1/", nil, false},
	{"port of https", "https://127.0.0.1:PORT/", nil, false},
	{"port 0", "http://127.0.0.1:0/", nil, false},
	{"port and zeros", "http://127.0.0.1:00000PORT/", nil, true},
	{"Redis", "http://127.0.0.1:6379/", nil, false},
	{"gopher", "gopher://127.0.0.1:PORT/_FLUSHALL", nil, false},
	{"file", "file:///etc/passwd", nil, false},
	{"socket", "unix:///var/run/docker.sock", nil, false},
	{"no scheme", "//127.0.0.1:PORT/", nil, false},
}

// inside is a server on loopback addresses that nobody should reach.
func inside(t *testing.T) (port string, calls *atomic.Int32) {
	calls = &atomic.Int32{}
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) { calls.Add(1) })
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, calls
}

func TestForbiddenAddresses(t *testing.T) {
	port, calls := inside(t)
	for _, tt := range forbidden {
		t.Run(tt.what, func(t *testing.T) {
			request := Request{URL: strings.ReplaceAll(tt.url, "PORT", port)}
			s := New(Config{Timeout: 10 * time.Second})
			defer s.Close()
			names := &names{answer: func(string) []string { return tt.resolve }}
			s.dialer.Resolver = names.resolver()
			err := s.Send(t.Context(), call, request)
			want := "private"
			if err != nil && strings.HasPrefix(err.Error(), "url: ") {
				want = "permanent"
			}
			if kind(err) != want || calls.Load() != 0 {
				t.Errorf("%s, %d got through: %v", kind(err), calls.Swap(0), err)
			}
			// Producers are warned of addresses, but not of names: their addresses may change.
			literal := want == "private" && (tt.resolve == nil || strings.Contains(strings.ToLower(tt.url), "localhost"))
			if host := request.PrivateHost(); (host != "") != literal {
				t.Errorf("PrivateHost = %q; want one: %v", host, literal)
			}
			if !tt.arrives {
				return
			}
			// The same call arrives when it is allowed: so it was the check that kept
			// it out, and nothing else.
			s = newSender(t, Config{Timeout: 10 * time.Second})
			s.dialer.Resolver = names.resolver()
			if err := s.Send(t.Context(), call, request); err != nil || calls.Load() != 1 {
				t.Errorf("allowed, but %d got through: %v", calls.Load(), err)
			}
			calls.Store(0)
		})
	}
}

// A redirect leads nowhere, not even to where calls are allowed to go.
func TestRedirectsAreNotFollowed(t *testing.T) {
	port, calls := inside(t)
	var location string
	var status int
	redirects := 0
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		redirects++
		w.Header()["Location"] = []string{location}
		w.WriteHeader(status)
	})
	s := newSender(t, Config{})
	for _, tt := range append(forbidden, struct {
		what    string
		url     string
		resolve []string
		arrives bool
	}{"public", "https://example.com/", nil, false}) {
		location = strings.NewReplacer("PORT", port, "\r\n", "").Replace(tt.url)
		for _, status = range []int{301, 302, 303, 307, 308} {
			for _, method := range []string{"GET", "POST"} {
				redirects = 0
				err := s.Send(t.Context(), call, Request{URL: server.URL, Method: method})
				if kind(err) != "permanent" || redirects != 1 || calls.Swap(0) != 0 || strings.Contains(err.Error(), location) {
					t.Errorf("%s, %d, %s: %s after %d calls: %v", tt.what, status, method, kind(err), redirects, err)
				}
			}
		}
	}
}

// A name that resolves to something else each time: what is dialled is what was
// checked. 127.0.0.1 stands for a public address here, and 127.0.0.2 is private.
func TestRebinding(t *testing.T) {
	var public, private atomic.Int32
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		public.Add(1)
		w.Header().Set("Connection", "close")
	})
	port := server.Listener.Addr().(*net.TCPAddr).Port
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.2:%d", port))
	if errors.Is(err, syscall.EADDRNOTAVAIL) { // as on macOS
		t.Skipf("no second loopback address: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	other := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { private.Add(1) })}
	var serving sync.WaitGroup
	serving.Go(func() { other.Serve(listener) })
	defer serving.Wait()
	defer other.Close()

	var answers [][]string
	asked := 0
	names := &names{answer: func(string) []string {
		defer func() { asked++ }()
		return answers[asked%len(answers)]
	}}
	s := New(Config{Timeout: 10 * time.Second})
	defer s.Close()
	s.dialer.Resolver = names.resolver()
	s.dialer.Control = ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(netip.MustParsePrefix("127.0.0.1/32"))).Safe
	send := func() error {
		return s.Send(t.Context(), call, Request{URL: fmt.Sprintf("http://rebind.example:%d/", port), Body: json.RawMessage(`{}`)})
	}

	// Each call asks once, and goes by that answer alone.
	answers = [][]string{{"127.0.0.1"}, {"127.0.0.2"}}
	for i, want := range []string{"ok", "private", "ok", "private"} {
		if err := send(); kind(err) != want || asked != i+1 {
			t.Errorf("call %d, after %d questions: %s: %v", i+1, asked, kind(err), err)
		}
	}
	// Of several addresses, none but those that may be dialled are.
	for _, answers = range [][][]string{{{"127.0.0.2", "127.0.0.1"}}, {{"127.0.0.1", "127.0.0.2"}}} {
		if err := send(); err != nil {
			t.Error(err)
		}
	}
	if public.Load() != 4 || private.Load() != 0 {
		t.Errorf("%d calls, and %d to the private address", public.Load(), private.Load())
	}
}

// A proxy would dial in our place, and resolve names of its own.
func TestProxiesAreNotUsed(t *testing.T) {
	port, calls := inside(t)
	proxied := &atomic.Int32{}
	proxy := newServer(t, func(w http.ResponseWriter, r *http.Request) { proxied.Add(1) })
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, proxy.URL)
	}
	for _, name := range []string{"NO_PROXY", "no_proxy", "REQUEST_METHOD"} {
		t.Setenv(name, "")
	}
	names := &names{answer: func(string) []string { return []string{"127.0.0.1"} }}
	s := New(Config{})
	defer s.Close()
	s.dialer.Resolver = names.resolver()
	for _, scheme := range []string{"http", "https"} {
		if err := s.Send(t.Context(), call, Request{URL: scheme + "://proxied.example:" + port}); kind(err) != "private" {
			t.Errorf("%s: %s: %v", scheme, kind(err), err)
		}
	}
	if s.transport.Proxy != nil {
		t.Error("the transport asks for a proxy")
	}
	if calls.Load() != 0 || proxied.Load() != 0 {
		t.Errorf("%d calls, %d by way of the proxy", calls.Load(), proxied.Load())
	}
}

// names is a DNS server in this process; nil means that there is no such name.
type names struct {
	answer func(name string) []string

	mu    sync.Mutex
	asked string // the two questions of one look-up, A and AAAA, get one answer
	now   []string
}

func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe() // no PacketConn: messages have their length before them
		go func() {
			defer ours.Close()
			for {
				var size [2]byte
				if _, err := io.ReadFull(ours, size[:]); err != nil {
					return
				}
				question := make([]byte, binary.BigEndian.Uint16(size[:]))
				if _, err := io.ReadFull(ours, question); err != nil {
					return
				}
				reply := n.reply(question)
				if _, err := ours.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
					return
				}
			}
		}()
		return theirs, nil
	}}
}

// reply answers a question (RFC 1035, 4.1).
func (n *names) reply(question []byte) []byte {
	const header, a, aaaa = 12, 1, 28
	var labels []string
	end := header
	for question[end] != 0 {
		size := int(question[end])
		labels = append(labels, string(question[end+1:end+1+size]))
		end += 1 + size
	}
	end += 5 // the root, type and class
	kind := binary.BigEndian.Uint16(question[end-4:])

	n.mu.Lock()
	defer n.mu.Unlock()
	name := strings.Join(labels, ".")
	if n.asked == name {
		n.asked = ""
	} else {
		n.asked, n.now = name, n.answer(name)
	}
	var records []byte
	count := uint16(0)
	for _, text := range n.now {
		address := netip.MustParseAddr(text)
		if address.Is4() != (kind == a) || kind != a && kind != aaaa {
			continue
		}
		raw := address.AsSlice()
		records = append(records, 0xc0, header) // the name of the question
		records = binary.BigEndian.AppendUint16(records, kind)
		records = append(records, 0, 1, 0, 0, 0, 0) // class IN, for 0 s
		records = binary.BigEndian.AppendUint16(records, uint16(len(raw)))
		records = append(records, raw...)
		count++
	}
	flags := uint16(0x8180) // an answer, recursion available
	if n.now == nil {
		flags |= 3 // no such name
	}
	reply := append([]byte(nil), question[:2]...)
	reply = binary.BigEndian.AppendUint16(reply, flags)
	reply = binary.BigEndian.AppendUint16(reply, 1)
	reply = binary.BigEndian.AppendUint16(reply, count)
	reply = append(reply, 0, 0, 0, 0)
	reply = append(reply, question[header:end]...)
	return append(reply, records...)
}
