// Command receiver runs providers of the sandbox in a separate process, so that the race detector
// does not slow them down in the end-to-end tests.
//
// It prints three addresses: of the webhook receiver, of the mail server, and of the control
// server with /calls, /calls/stats, /mails, /mails/stats, /fail?n=&status=, /slow?ms=, /hang,
// /release and /trickle?ms=.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/fdtable"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "receiver: "+err.Error())
		os.Exit(1)
	}
}

func run() error {
	fdtable.Grow(8192)       // it would stand still when it has the 256th connection, and the 512th, and so on
	var trickle atomic.Int64 // ms for each byte of an answer
	provider, err := sandbox.NewHTTP(sandbox.Config{Answer: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer(w, time.Duration(trickle.Load())*time.Millisecond)
	})})
	if err != nil {
		return err
	}
	defer provider.Close()
	post, err := sandbox.NewSMTP()
	if err != nil {
		return err
	}
	defer post.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var mu sync.Mutex
	release := func() {}
	mux := http.NewServeMux()
	for path, log := range map[string]*sandbox.Provider{"/calls": provider.Provider, "/mails": post.Provider} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(log.Calls()) // the test notices a truncated answer
		})
		mux.HandleFunc("GET "+path+"/stats", func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(log.Stats())
		})
	}
	mux.HandleFunc("POST /fail", func(_ http.ResponseWriter, r *http.Request) {
		provider.Fail(number(r, "n"), number(r, "status"))
	})
	mux.HandleFunc("POST /slow", func(_ http.ResponseWriter, r *http.Request) {
		provider.Slow(time.Duration(number(r, "ms")) * time.Millisecond)
	})
	mux.HandleFunc("POST /trickle", func(_ http.ResponseWriter, r *http.Request) { trickle.Store(int64(number(r, "ms"))) })
	mux.HandleFunc("POST /hang", func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		release = provider.Hang()
	})
	mux.HandleFunc("POST /release", func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		release()
	})
	fmt.Println(provider.URL(), post.Addr(), "http://"+listener.Addr().String())
	return http.Serve(listener, mux) // until the test kills it
}

// answer answers a call, or sends the answer byte by byte, from its first line on.
func answer(w http.ResponseWriter, each time.Duration) {
	const text = `{"ok":true}`
	if each == 0 {
		_, _ = io.WriteString(w, text) // the caller may be gone
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	for _, b := range fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text) {
		time.Sleep(each) // what it is for
		if _, err := conn.Write([]byte{b}); err != nil {
			return
		}
	}
}

func number(r *http.Request, name string) int {
	n, _ := strconv.Atoi(r.URL.Query().Get(name)) // 0 if missing
	return n
}
