package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/get"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
)

// What stands in every secret of the test below, and in nothing else.
const canary = "CANARY"

var (
	canarySecret = "whsec_" + canary + strings.Repeat("A", 37) + "="
	canaryPass   = canary + "-password"
)

// leaks finds the canary in a text, also in base64 from wherever it may begin.
func leaks(text string) bool {
	if strings.Contains(text, canary) {
		return true
	}
	for shift := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + canary + "-pass"))
		if strings.Contains(text, encoded[4:12]) {
			return true
		}
	}
	return false
}

// sameLine answers every request over a connection with what of it holds a secret.
func sameLine(t *testing.T, greets bool, answer func(secret string) string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if greets {
					fmt.Fprint(conn, "220 mail\r\n")
				}
				lines := bufio.NewScanner(conn)
				secret := "nothing"
				for lines.Scan() {
					line := lines.Text()
					if leaks(line) {
						secret = line
					}
					switch {
					case greets && strings.HasPrefix(line, "EHLO"):
						fmt.Fprint(conn, "250-mail\r\n250 AUTH PLAIN LOGIN\r\n")
					case greets || line == "":
						fmt.Fprint(conn, answer(secret))
						return
					}
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// TestNoSecretIsTold: whatever goes wrong with a call, no secret comes out of the
// worker: not in its log, its metrics, a job's error, a pause, or its settings.
func TestNoSecretIsTold(t *testing.T) {
	repeat := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var said bytes.Buffer
		r.Header.Write(&said)
		body, _ := io.ReadAll(r.Body)
		text := strings.ReplaceAll(said.String(), "\r\n", "; ") + r.URL.String()
		if r.Header.Get("Webhook-Id") != "" {
			text += string(body)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Request-Id", r.Header.Get("Authorization"))
		w.Header().Set("X-Amzn-Errortype", "InvalidSignatureException")
		w.WriteHeader(http.StatusUnauthorized)
		json.NewEncoder(w).Encode(map[string]any{
			"name": "invalid_api_key", "message": text, "error": map[string]string{"message": text, "code": text, "type": "invalid_request_error"},
		})
	})
	nobody := redistest.FreeAddr(t)
	modes := map[string]func(t *testing.T) (url, smtp, tls string){
		"refused, and repeated": func(t *testing.T) (string, string, string) {
			server := httptest.NewServer(repeat)
			t.Cleanup(server.Close)
			return server.URL, sameLine(t, true, func(secret string) string { return "535 5.7.8 not " + secret + "\r\n" }), "none"
		},
		"no connection": func(*testing.T) (string, string, string) {
			return "http://" + nobody, nobody, "none"
		},
		"bad TLS": func(t *testing.T) (string, string, string) {
			server := httptest.NewUnstartedServer(repeat)
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.StartTLS()
			t.Cleanup(server.Close)
			return server.URL, server.Listener.Addr().String(), "implicit"
		},
		"malformed": func(t *testing.T) (string, string, string) {
			echo := func(secret string) string { return secret + "\r\n" + secret + "\r\n\r\n" }
			return "http://" + sameLine(t, false, echo), sameLine(t, true, echo), "none"
		},
		"not what it should be": func(t *testing.T) (string, string, string) {
			web := sameLine(t, false, func(secret string) string {
				return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(secret), secret)
			})
			return "http://" + web, sameLine(t, true, func(secret string) string { return "235 " + secret + "\r\n999 " + secret + "\r\n" }), "none"
		},
	}
	for mode, start := range modes {
		for _, provider := range []string{"smtp", "ses", "resend"} {
			t.Run(mode+", "+provider, func(t *testing.T) { noSecretIsTold(t, provider, start) })
		}
	}
}

func noSecretIsTold(t *testing.T, provider string, start func(t *testing.T) (url, smtp, tls string)) {
	url, smtp, tls := start(t)
	credentials := map[string]string{
		"smtp": "{username: me, password: " + canaryPass + "}", "resend": "{api_key: re_" + canary + "}",
		"ses": "{access_key_id: AKIA1, secret_access_key: " + canary + "secret, session_token: " + canary + "token}",
	}
	folder := t.TempDir()
	file, keyFile := filepath.Join(folder, "credentials.yaml"), filepath.Join(folder, "key")
	t.Setenv("TEST_KEY_OF_ACME", canary+"-of-acme")
	for path, text := range map[string]string{
		keyFile: "sk_test_" + canary + "acme\n",
		file: "tenants: {acme: {webhook: {secrets: [" + canarySecret + "]}, ai: {api_key: {env: TEST_KEY_OF_ACME}}, payment: {key: {file: \"" + keyFile + "\"}}, email: " +
			credentials[provider] + "}}",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	server := redistest.Start(t)
	if err := server.Client().ConfigSet(t.Context(), "requirepass", canaryPass).Err(); err != nil {
		t.Fatal(err)
	}
	redisURL := strings.Replace(server.URL(), "redis://", "redis://:"+canaryPass+"@", 1)
	options, err := queue.ParseRedisURL(redisURL)
	if err != nil {
		t.Fatal(err)
	}
	redisClient := redis.NewUniversalClient(options)
	defer redisClient.Close()
	addr := quietly(t, redisURL, "queues: {webhook: {kinds: [webhook]}, email: {kinds: [email]}, ai: {kinds: [ai]}, payment: {kinds: [payment]}}")
	for name, value := range map[string]string{
		"BREAKER_FAILURES": "0", "WEBHOOK_ALLOW_PRIVATE": "true", "CREDENTIALS_FILE": file, "EMAIL_PROVIDER": provider,
		"SMTP_ADDR": smtp, "SMTP_TLS": tls, "SMTP_USERNAME": "me", "SMTP_PASSWORD": canaryPass,
		"SES_REGION": "eu-central-1", "SES_ACCESS_KEY_ID": "AKIA1", "SES_SECRET_ACCESS_KEY": canary + "secret", "SES_SESSION_TOKEN": canary + "token", "SES_ENDPOINT": url,
		"RESEND_API_KEY": "re_" + canary, "RESEND_URL": url,
		"AI_PROVIDER": "openai", "AI_BASE_URL": url, "AI_API_KEY": canary + "-of-the-worker",
		"STRIPE_KEY": "sk_test_" + canary, "STRIPE_URL": url,
	} {
		t.Setenv(prefix+name, value)
	}
	var told bytes.Buffer
	settings, errText, code := command(t.Context(), "config")
	if code != 0 {
		t.Fatal(errText)
	}
	told.WriteString(settings)

	written, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("calls", func(t *testing.T) { // its end is that of the worker
		stderr := os.Stderr
		os.Stderr = written
		t.Cleanup(func() { os.Stderr = stderr })
		running(t)
		client := queue.NewClient(redisClient)
		for _, tenant := range []string{"acme", "globex"} { // the key of its own first: its refusal holds no other
			for kind, payload := range map[string]string{
				"webhook": `{"url":"` + url + `/hook/` + canary + `-token?key=` + canary + `-key","headers":{"Authorization":"Bearer ` + canary + `-header","Cookie":"id=` + canary + `"},` +
					`"body":{"password":"` + canary + `","deep":[{"userPin":"` + canary + `","session":["` + canary + `"]}],"url":"https://hooks.slack.com/services/` + canary + `"}}`,
				"email": mail, "ai": aiPayload, "payment": paymentPayload,
			} {
				receipt, err := client.Enqueue(t.Context(), queue.Job{Kind: kind, Tenant: tenant, Payload: json.RawMessage(payload), MaxAttempts: 1, Retention: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				said := ""
				for deadline := time.Now().Add(time.Minute); said == ""; time.Sleep(5 * time.Millisecond) {
					result, err := client.Result(t.Context(), kind, receipt.ID)
					if err != nil {
						t.Fatal(err)
					}
					if said = result.Err; result.Outcome == lifecycle.Done {
						said = "done" // some providers take any 2xx for a success
					}
					if time.Now().After(deadline) {
						t.Fatalf("%s of %s did not end: %+v", kind, tenant, result)
					}
				}
				fmt.Fprintf(&told, "%s of %s: %s\n", kind, tenant, said)
				// Who may read jobs sees their URLs, but for what is secret in any.
				told.WriteString(strings.ReplaceAll(get.Text(t, "http://"+addr+"/api/v1/queues/"+kind+"/jobs/"+receipt.ID), "/hook/"+canary, "/hook/"))
			}
		}
		for _, name := range []string{"webhook", "email", "ai", "payment"} {
			pauses, err := inspect.Pauses(t.Context(), redisClient, name)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&told, "%+v\n", pauses)
			for _, path := range []string{"", "/failures", "/jobs?state=archived", "/tenants/acme"} {
				told.WriteString(get.Text(t, "http://"+addr+"/api/v1/queues/"+name+path))
			}
		}
		told.WriteString(get.Text(t, "http://"+addr+"/api/v1/audit"))
		metrics := get.Text(t, "http://"+addr+"/metrics")
		if !strings.Contains(metrics, "headgate_jobs_finished_total") {
			t.Fatal(metrics)
		}
		told.WriteString(metrics)
	})
	text, err := os.ReadFile(written.Name())
	written.Close()
	if err != nil || !bytes.Contains(text, []byte("call failed")) || !bytes.Contains(text, []byte("OTHERS CAN READ")) {
		t.Fatalf("the log: %s, %v", text, err)
	}
	told.Write(text)
	for line := range strings.Lines(told.String()) {
		if leaks(line) {
			t.Errorf("it tells a secret: %s", line)
		}
	}
}
