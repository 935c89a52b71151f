package webhook

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/sandbox"
)

// No error, however it is printed, holds what a call keeps secret, also when the
// receiver repeats every bit of what it got.
func TestSecretsStaySecret(t *testing.T) {
	const (
		canary  = "CANARY"
		signing = canary + "-signing-secret-0123"
		secret  = canary + "-path-0123"
	)
	request := Request{
		Headers: map[string]string{"Authorization": "Bearer " + canary + "-bearer", "X-Api-Key": canary + "-key", "Cookie": "a=1; session=" + canary + "-cookie"},
		Body:    json.RawMessage(`{"n":1}`),
	}
	const path = "/hooks/" + secret + "/in%20" + canary + "?sig=" + canary + "-sig&x=" + canary + "%20query"
	key := "whsec_" + base64.StdEncoding.EncodeToString([]byte(signing+signing))

	// Everything that a receiver knows, in many spellings.
	repeat := func(w io.Writer, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s %q ", r.RequestURI, r.URL.Path, r.URL.RawQuery, r.URL.Query())
		for name, values := range r.Header {
			fmt.Fprintf(w, "%s: %s; ", name, values)
			for _, value := range values {
				for part := range strings.FieldsSeq(value) {
					fmt.Fprintf(w, "<%s> ", part)
				}
			}
		}
	}
	errs := map[string]error{}
	send := func(name string, config Config, url string) {
		config.AllowPrivate = !strings.HasPrefix(name, "refused")
		if config.Secrets == nil {
			config.Secrets = given(key)
		}
		s := New(config)
		defer s.Close()
		r := request
		r.URL = url + path
		errs[name] = s.Send(t.Context(), call, r)
	}
	for _, status := range []int{302, 400, 401, 404, 408, 409, 410, 429, 500, 503, 600} {
		server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", r.RequestURI)
			w.WriteHeader(status)
			repeat(w, r)
		})
		send(fmt.Sprint(status), Config{}, server.URL)
	}
	raw := func(answer func(io.Writer, *http.Request)) string {
		server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			answer(conn, r)
		})
		return server.URL
	}
	send("no http", Config{}, raw(repeat))
	send("no status", Config{}, raw(func(w io.Writer, r *http.Request) {
		io.WriteString(w, "HTTP/1.1 ")
		repeat(w, r)
		io.WriteString(w, "\r\n\r\n")
	}))
	send("no header", Config{}, raw(func(w io.Writer, r *http.Request) {
		io.WriteString(w, "HTTP/1.1 200 OK\r\n")
		repeat(w, r)
		io.WriteString(w, "\r\n\r\n")
	}))
	send("no length", Config{}, raw(func(w io.Writer, r *http.Request) {
		io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: ")
		repeat(w, r)
		io.WriteString(w, "\r\n\r\n")
	}))
	send("lost", Config{}, raw(func(io.Writer, *http.Request) {}))
	const closed = "http://127.0.0.1:1"
	send("no connection", Config{}, closed)
	send("no tls", Config{TLS: &tls.Config{}}, strings.Replace(newServer(t, nil).URL, "http:", "https:", 1))
	send("no name", Config{}, "http://headgate.invalid")
	send("refused: private", Config{}, "http://127.0.0.1:1")
	send("refused: url", Config{}, "http://127.1:1")
	send("url", Config{}, "http://u:"+canary+"@127.0.0.1")
	send("port", Config{}, "http://127.0.0.1:"+canary)
	send("body", Config{MaxBody: 1}, closed)
	send("secret", Config{Secrets: given(canary + " is not base64")}, closed)
	send("short secret", Config{Secrets: given("whsec_" + base64.StdEncoding.EncodeToString([]byte(canary)))}, closed)

	for name, err := range errs {
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		var log strings.Builder
		slog.New(slog.NewJSONHandler(&log, nil)).Error("call failed", "err", err)
		for _, text := range []string{err.Error(), fmt.Sprintf("%v %s %q", err, err, err), log.String()} {
			for _, word := range []string{canary, base64.StdEncoding.EncodeToString([]byte(signing))[:12], "v1,"} {
				if strings.Contains(text, word) {
					t.Errorf("%s: %s stands in %s", name, word, text)
				}
			}
		}
		if len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\r\n\x1b") {
			t.Errorf("%s: not one short line: %q", name, err)
		}
	}
}

// The whole way against the sandbox, which keeps to limits of its own.
func TestAgainstTheSandbox(t *testing.T) {
	var got received
	provider, err := sandbox.NewHTTP(sandbox.Config{
		Limit: sandbox.Limit{Rate: 0.001, Burst: 2},
		Answer: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			got = received{r.Header, body}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer provider.Close()
	s := newSender(t, Config{Secrets: given(secretB, secretA)})
	send := func() error {
		return s.Send(t.Context(), call, Request{URL: provider.URL(), Body: json.RawMessage(`{"n":1}`)})
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{secretA, secretB} {
		if err := verify(t, &got, secret); err != nil {
			t.Error(err)
		}
	}
	provider.Drop(1)
	if err := send(); kind(err) != "unknown" {
		t.Errorf("%s: %v", kind(err), err)
	}
	err = send()
	throttled, is := errors.AsType[*clients.ThrottledError](err)
	if !is || throttled.RetryAfter() < 15*time.Minute || throttled.RetryAfter() > 17*time.Minute {
		t.Errorf("%s: %v", kind(err), err)
	}
}

// What is asked for secrets is bound to the call's time.
func TestSecretsThatDoNotCome(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	s := newSender(t, Config{Timeout: time.Millisecond, Secrets: func(ctx context.Context, _ string) ([]string, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	if err := s.Send(t.Context(), call, Request{URL: "http://" + listener.Addr().String()}); kind(err) != "retryable" || !strings.HasPrefix(err.Error(), "signing secrets: ") {
		t.Errorf("%s: %v", kind(err), err)
	}
}
