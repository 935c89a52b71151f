package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/keysfile"
	"github.com/headgate/headgate/internal/test/get"
	"github.com/headgate/headgate/internal/test/logtest"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
)

var servedAt = regexp.MustCompile(`http=(\S+)`)

// A key that "keys new" makes lets its owner in where "serve" serves.
func TestServeWithKeys(t *testing.T) {
	out, errText, code := enqueue(t, "", "keys", "new", "--id", "shop", "--scope", "enqueue,read", "--tenant", "acme", "--rate", "100/s", "--for", "1h")
	if code != exitOK {
		t.Fatal(errText)
	}
	secret := regexp.MustCompile(`hg_\S+`).FindString(out)
	_, entry, _ := strings.Cut(out, "\"keys:\":\n\n")
	if len(secret) != len("hg_")+43 || strings.Contains(entry, secret) {
		t.Fatalf("%s", out)
	}
	path := put(t, filepath.Join(t.TempDir(), "keys.yaml"), "keys:\n"+entry)
	if keys, err := keysfile.Parse([]byte("keys:\n" + entry)); err != nil || keys[0].ID != "shop" || keys[0].Tenants[0] != "acme" {
		t.Fatalf("%v\n%s", err, entry)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var log logtest.Buffer
	cmd := root()
	cmd.SetArgs([]string{"serve", "--redis", redistest.Shared(t).URL(), "--http", "127.0.0.1:0", "--keys", path})
	cmd.SetErr(&log)
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	until.Done(t, "served", func() bool { return servedAt.MatchString(log.String()) })
	url := servedAt.FindStringSubmatch(log.String())[1]
	for key, want := range map[string]int{"": 401, secret: 200} {
		request, err := http.NewRequestWithContext(t.Context(), "GET", url+"api/v1/session", nil)
		if err != nil {
			t.Fatal(err)
		}
		if key != "" {
			request.Header.Set("Authorization", "Bearer "+key)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("with key %q: %s", key, response.Status)
		}
	}
	text := get.Text(t, url+"metrics")
	for _, want := range []string{
		`headgate_limiter_decisions_total{decision="allowed",limit="key"} 1`, `headgate_limiter_decisions_total{decision="allowed",limit="address"} 2`,
		"headgate_build_info{", "go_goroutines ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("/metrics has no %s:\n%s", want, text)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	if strings.Contains(log.String(), secret) {
		t.Error("the log has the key")
	}
}

func TestServeRefuses(t *testing.T) {
	url := redistest.Shared(t).URL()
	t.Setenv("HEADGATE_API_RATE_PER_KEY", "100/s")
	for want, args := range map[string][]string{
		"HEADGATE_API_KEYS_FILE names no file":   {"--http", ":0"},
		`HEADGATE_HTTP_ADDR: "8080" is not host`: {"--http", "8080"},
		"--api-rate-per-ip":                      {"--api-rate-per-ip", "fast"},
		"ADMIN_PPROF: it needs":                  {"--admin-pprof"},
		"no such file":                           {"--keys", filepath.Join(t.TempDir(), "none")},
		`"xml" is neither text nor json`:         {"--log-format", "xml"},
		"--trusted-proxies":                      {"--trusted-proxies", "everybody"},
		"serve takes no arguments":               {"now"},
		"HEADGATE_TLS_CERT: it needs":            {"--http", "127.0.0.1:0", "--tls-cert", os.DevNull},
	} {
		_, errText, code := enqueue(t, "", append([]string{"serve", "--redis", url}, args...)...)
		if code == exitOK || !strings.Contains(errText, want) {
			t.Errorf("%v: %q exit %d; want %q", args, errText, code, want)
		}
	}
	for want, args := range map[string][]string{
		"--id: ":    {"--scope", "read"},
		"--scope: ": {"--id", "a"},
		"--rate: ":  {"--id", "a", "--scope", "read", "--rate", "fast"},
		"--for: ":   {"--id", "a", "--scope", "read", "--for", "-1h"},
	} {
		if _, errText, code := enqueue(t, "", append([]string{"keys", "new"}, args...)...); code != exitUsage || !strings.Contains(errText, want) {
			t.Errorf("%v: %q exit %d; want %q", args, errText, code, want)
		}
	}
}
