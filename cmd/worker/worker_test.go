package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue/workers"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "pacer" || len(os.Args) == 3 && os.Args[1] == "miniredis" { // a demo in this process starts it
		main()
		return
	}
	redistest.Main(m)
}

// command runs worker as a shell would.
func command(ctx context.Context, args ...string) (out, errText string, code int) {
	var stdout bytes.Buffer
	cmd := root()
	cmd.SetArgs(args)
	cmd.SetOut(&stdout)
	cmd.SetErr(&stdout)
	if err := cmd.ExecuteContext(ctx); err != nil {
		return stdout.String(), err.Error(), program.ExitCode(err)
	}
	return stdout.String(), "", 0
}

func TestConfig(t *testing.T) {
	t.Setenv("HEADGATE_REDIS_URL", "redis://me:hush@redis.example:6379/1")
	t.Setenv("HEADGATE_SMTP_PASSWORD", "hush")
	t.Setenv("HEADGATE_CONCURRENCY", "7")
	t.Setenv("HEADGATE_QUEUES", "a,b")
	out, errText, code := command(t.Context(), "config", "--concurrency", "9", "--webhook-allow-private")
	if code != 0 {
		t.Fatal(errText)
	}
	for _, want := range []string{
		"HEADGATE_REDIS_URL", "redis://me:(set)@redis.example:6379/1", "HEADGATE_SMTP_PASSWORD", "(set)",
		"a,b", " 9 ", "HEADGATE_WEBHOOK_ALLOW_PRIVATE", "true", "HEADGATE_SHUTDOWN_TIMEOUT",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "hush") {
		t.Errorf("it tells a secret:\n%s", out)
	}
}

func TestVersion(t *testing.T) {
	if out, errText, code := command(t.Context(), "--version"); code != 0 || !strings.HasPrefix(out, "worker version ") {
		t.Errorf("%q, %q, exit %d", out, errText, code)
	}
}

func TestWrongSettings(t *testing.T) {
	for name, test := range map[string]struct{ value, want string }{
		"HEADGATE_REDIS_URL":        {"http://u:hush@x", "HEADGATE_REDIS_URL: redis URL: scheme"},
		"HEADGATE_CONCURRENCY":      {"hush", "HEADGATE_CONCURRENCY: not a valid int"},
		"HEADGATE_HTTP_ADDR":        {"9090", `HEADGATE_HTTP_ADDR: "9090" is not host:port`},
		"HEADGATE_LOG_FORMAT":       {"xml", "HEADGATE_LOG_FORMAT: "},
		"HEADGATE_METRICS_TENANTS":  {"top:0", "HEADGATE_METRICS_TENANTS: top: \"0\" must be a number from 1 to 1000"},
		"HEADGATE_SHUTDOWN_TIMEOUT": {"-1s", "HEADGATE_SHUTDOWN_TIMEOUT: -1s is not longer than 0"},
		"HEADGATE_BREAKER_FAILURES": {"-1", "HEADGATE_BREAKER_FAILURES: -1 is below 0"},
		"HEADGATE_BREAKER_PAUSE":    {"0s", "HEADGATE_BREAKER_PAUSE: 0s is not longer than 0"},
		"HEADGATE_SMTP_ADDR":        {"mail", "HEADGATE_SMTP_ADDR: "},
		"HEADGATE_SMTP_TLS":         {"sometimes", "HEADGATE_SMTP_TLS: "},
		"HEADGATE_LIMITS_FILE":      {"/does/not/exist.yaml", "limits file: open /does/not/exist.yaml"},
		"HEADGATE_QUEUES":           {"", "no queue to serve: set HEADGATE_LIMITS_FILE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, test.value)
			_, errText, code := command(t.Context(), "run")
			if code == 0 || !strings.Contains(errText, test.want) || strings.Contains(errText, "hush") {
				t.Errorf("%q, exit %d; want %q", errText, code, test.want)
			}
		})
	}
	for name, test := range map[string]struct {
		environment map[string]string
		want        string
	}{
		"no such provider":       {map[string]string{"EMAIL_PROVIDER": "pigeon"}, `HEADGATE_EMAIL_PROVIDER: "pigeon" is not one of smtp, ses, resend`},
		"smtp without a server":  {map[string]string{"EMAIL_PROVIDER": "smtp"}, "HEADGATE_SMTP_ADDR: it is missing, and HEADGATE_EMAIL_PROVIDER=smtp needs it"},
		"resend without a key":   {map[string]string{"EMAIL_PROVIDER": "resend"}, "HEADGATE_RESEND_API_KEY: it is missing"},
		"ses, half a key":        {map[string]string{"EMAIL_PROVIDER": "ses", "SES_ACCESS_KEY_ID": "hush", "SES_REGION": "eu-central-1"}, "HEADGATE_SES_SECRET_ACCESS_KEY: it is missing"},
		"ses, the other half":    {map[string]string{"EMAIL_PROVIDER": "ses", "SES_SECRET_ACCESS_KEY": "hush", "SES_REGION": "eu-central-1"}, "HEADGATE_SES_ACCESS_KEY_ID: it is missing"},
		"ses without a region":   {map[string]string{"EMAIL_PROVIDER": "ses", "SES_ACCESS_KEY_ID": "hush", "SES_SECRET_ACCESS_KEY": "hush"}, "HEADGATE_SES_REGION: it is missing"},
		"no such model provider": {map[string]string{"AI_PROVIDER": "hal"}, `HEADGATE_AI_PROVIDER: "hal" is not one of openai, azure, anthropic`},
		"openai without a key":   {map[string]string{"AI_PROVIDER": "openai"}, "HEADGATE_AI_API_KEY: it is missing"},
		"azure without its url":  {map[string]string{"AI_PROVIDER": "azure", "AI_API_KEY": "hush"}, "HEADGATE_AI_BASE_URL: it is missing"},
		"no time":                {map[string]string{"RESEND_TIMEOUT": "0s"}, "HEADGATE_RESEND_TIMEOUT: 0s is not longer than 0"},
	} {
		t.Run(name, func(t *testing.T) {
			for name, value := range test.environment {
				t.Setenv(prefix+name, value)
			}
			_, errText, code := command(t.Context(), "run")
			if code != 2 || !strings.Contains(errText, test.want) || strings.Contains(errText, "hush") {
				t.Errorf("%q, exit %d; want %q", errText, code, test.want)
			}
		})
	}
	if _, errText, code := command(t.Context(), "run", "--concurency", "3"); code != 2 || !strings.Contains(errText, "unknown flag") {
		t.Errorf("%q, exit %d", errText, code)
	}
	if _, errText, code := command(t.Context(), "dev", "now"); code != 2 {
		t.Errorf("%q, exit %d", errText, code)
	}
}

// quietly sets what every run in these tests needs.
func quietly(t *testing.T, redisURL, limits string) (addr string) {
	t.Helper()
	addr = redistest.FreeAddr(t)
	path := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(path, []byte(limits), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HEADGATE_REDIS_URL", redisURL)
	t.Setenv("HEADGATE_HTTP_ADDR", addr)
	t.Setenv("HEADGATE_LIMITS_FILE", path)
	return addr
}

func TestRunRefuses(t *testing.T) {
	const limits = "queues: {webhook: {kinds: [webhook]}}"
	t.Run("a Redis that is not there", func(t *testing.T) {
		quietly(t, "redis://127.0.0.1:1", limits)
		if _, errText, code := command(t.Context(), "run"); code != 1 || !strings.Contains(errText, "127.0.0.1:1") {
			t.Errorf("%q, exit %d", errText, code)
		}
	})
	t.Run("a Redis that evicts", func(t *testing.T) {
		server := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
		quietly(t, server.URL(), limits)
		if _, errText, code := command(t.Context(), "run"); code != 1 || !strings.Contains(errText, "set maxmemory-policy noeviction") || strings.Contains(errText, "worker runs") {
			t.Errorf("%q, exit %d", errText, code)
		}
		if names := server.Client().Keys(t.Context(), "headgate:*").Val(); len(names) > 0 {
			t.Errorf("it has written %q", names)
		}
	})
	t.Run("a replica", func(t *testing.T) {
		quietly(t, redistest.Start(t).StartReplica().URL(), limits)
		if _, errText, code := command(t.Context(), "run"); code != 1 || !strings.Contains(errText, "this redis is a replica: connect to its master") {
			t.Errorf("%q, exit %d", errText, code)
		}
	})
	t.Run("a full Redis", func(t *testing.T) {
		quietly(t, redistest.Start(t, "--maxmemory", "1mb", "--maxmemory-policy", "noeviction").URL(), limits)
		if _, errText, code := command(t.Context(), "run"); code != 1 || !strings.Contains(errText, "OOM") {
			t.Errorf("%q, exit %d", errText, code)
		}
	})
	t.Run("a limits file with mistakes", func(t *testing.T) {
		quietly(t, redistest.Shared(t).URL(), "queues: {webhook: {kind: [webhook]}}")
		if _, errText, code := command(t.Context(), "run"); code != 1 || !strings.Contains(errText, `line 1: queues.webhook.kind: unknown field; did you mean "kinds"?`) {
			t.Errorf("%q, exit %d", errText, code)
		}
	})
}

func TestRunAndHealthcheck(t *testing.T) {
	server := redistest.Start(t)
	quietly(t, server.URL(), "queues: {webhook: {kinds: [webhook]}}")
	if _, errText, code := command(t.Context(), "healthcheck"); code != 1 || !strings.Contains(errText, "no answer from the address in HEADGATE_ADMIN_ADDR, or else HEADGATE_HTTP_ADDR") {
		t.Errorf("before: %q, exit %d", errText, code)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan string, 1)
	go func() {
		_, errText, _ := command(ctx, "run")
		ended <- errText
	}()
	untilReady(t)
	var living []workers.Info
	until.Done(t, "it tells of itself", func() bool {
		var err error
		if living, err = workers.List(t.Context(), server.Client()); err != nil {
			t.Fatal(err)
		}
		return len(living) > 0
	})
	if len(living) != 1 || living[0].PID != os.Getpid() || !slices.Equal(living[0].Kinds, []string{"webhook"}) {
		t.Fatalf("workers: %+v", living)
	}
	told, err := api.ReadWorkerDetails(living[0])
	if err != nil || told.LimitsFile == nil || !strings.HasSuffix(told.LimitsFile.Path, "limits.yaml") ||
		len(told.Providers) != 1 || told.Providers[0].Kind != "webhook" || told.Providers[0].Breaker == nil {
		t.Errorf("details: %s, %v", living[0].Details, err)
	}
	stop()
	if errText := <-ended; errText != "" {
		t.Error(errText)
	}
	if living, err := workers.List(t.Context(), server.Client()); err != nil || len(living) != 0 {
		t.Errorf("after its end: %+v, %v", living, err)
	}
}

func TestFlagsOfDev(t *testing.T) {
	for _, test := range [][]string{
		{"--for: -1s must not be negative", "--for", "-1s"},
		{"--redis-port: 65536 must be from 0 to 65535", "--redis-port", "65536"},
		{`--http: "0.0.0.0:8080" is not an address of this machine alone: use 127.0.0.1:8080`, "--http", "0.0.0.0:8080"},
		{`--http: ":8080" is not`, "--http", ":8080"},
		{"--http: listen tcp: ", "--http", "127.0.0.1:x", "--miniredis"},
	} {
		if _, errText, code := command(t.Context(), append([]string{"dev"}, test[1:]...)...); code == 0 || !strings.HasPrefix(errText, test[0]) {
			t.Errorf("%v: exit %d, %q", test[1:], code, errText)
		}
	}
}
