package credentials

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/test/logtest"
	"github.com/headgate/headgate/internal/test/openfiles"
)

const canary = "whsec_CANARY"

// refusing finds fault with secrets that say so.
func refusing(_ string, s *Secrets) error {
	for _, name := range s.Fields() {
		for _, value := range s.List(name) {
			if strings.HasPrefix(value, "bad") {
				return errors.New(name + ": it is not one")
			}
		}
	}
	return nil
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFor(t *testing.T) {
	folder := t.TempDir()
	path, key := filepath.Join(folder, "credentials.yaml"), filepath.Join(folder, "key")
	write(t, key, "sk_file\n")
	t.Setenv("CREDENTIALS_TEST_KEY", "sk_env")
	write(t, path, `
tenants:
  acme:
    webhook: {secrets: [new, {file: `+key+`}]}
    ai: {api_key: {env: CREDENTIALS_TEST_KEY}}
    payment: {key: 0123}
    email: {username: me, password: "p w"}
  globex:
    payment: none
    ai: {api_key: {env: CREDENTIALS_TEST_NONE}}
    webhook: {secrets: [old, {file: `+folder+`/nothing}]}
`)
	s, err := Open(path, slog.New(slog.DiscardHandler), refusing)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		tenant, kind, field string
		want                string // joined
		held                string
	}{
		{"acme", "webhook", "secrets", "new sk_file", ""},
		{"acme", "ai", "api_key", "sk_env", ""},
		{"acme", "payment", "key", "0123", ""},
		{"acme", "email", "password", "p w", ""},
		{"globex", "email", "", "", ""},
		{"initech", "ai", "", "", ""},
		{"globex", "payment", "", "", "it has none in the credentials file"},
		{"globex", "ai", "", "", "api_key: the environment variable"},
		{"globex", "webhook", "", "", "secrets: open " + folder + "/nothing"},
	} {
		got, err := s.For(tt.kind, tt.tenant)
		if tt.held != "" {
			held, ok := errors.AsType[*HeldError](err)
			if !ok || !strings.HasPrefix(held.Reason, tt.held) || got != nil || !strings.Contains(err.Error(), "for "+tt.kind+" of tenant globex") {
				t.Errorf("%s %s: %v; want %q", tt.tenant, tt.kind, err, tt.held)
			}
			continue
		}
		if err != nil || (got == nil) != (tt.want == "") || got != nil && strings.Join(got.List(tt.field), " ") != tt.want {
			t.Errorf("%s %s: %+v, %v; want %q", tt.tenant, tt.kind, got, err, tt.want)
		}
	}
	if !s.Has("email") || (*Store)(nil).Has("email") {
		t.Error("Has")
	}
	if got, err := (*Store)(nil).For("ai", "acme"); got != nil || err != nil {
		t.Error(got, err)
	}
	a, b := newSecrets(map[string][]string{"key": {"1"}}), newSecrets(map[string][]string{"key": {"2"}})
	if a.ID == b.ID || a.ID != newSecrets(map[string][]string{"key": {"1"}}).ID || strings.Contains(a.ID, "1\"") {
		t.Error(a.ID, b.ID)
	}
}

func TestMistakes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "credentials.yaml")
	for text, want := range map[string]string{
		"": "empty; add tenants",
		"tenants: {a: {ai: {api_key: x}}}\n---\nb":                       "must be a single YAML document",
		"tenants: [" + canary + "]":                                      "line 1: tenants: must be a mapping",
		canary + ": {}":                                                  "line 1: unknown field; the fields are tenants",
		"tenants:\n  a:\n    " + canary + ": {}":                         "line 3: tenants.a: unknown field; the fields are ai, email, payment, webhook",
		"tenants: {a: {ai: " + canary + "}}":                             "tenants.a.ai: must be a mapping",
		"tenants: {a: {ai: {" + canary + ": x}}}":                        "tenants.a.ai: unknown field; the fields are api_key",
		"tenants: {a: {ai: {api_key: [" + canary + "]}}}":                "tenants.a.ai.api_key: must be a mapping",
		"tenants: {a: {ai: {api_key: {" + canary + ": x}}}}":             "unknown field; the fields are env, file",
		"tenants: {a: {ai: {api_key: {env: A, file: /" + canary + "}}}}": "must have one of env and file",
		"tenants: {a: {ai: {api_key: {file: " + canary + "}}}}":          "must be an absolute path",
		"tenants: {a: {ai: {api_key: \"" + canary + "\\n\"}}}":           "line breaks",
		"tenants: {a: {ai: {api_key: }}}":                                "tenants.a.ai.api_key: must not be empty",
		"tenants: {a: {ai: {}}}":                                         "tenants.a.ai: empty",
		"tenants: {a: {ai: {api_key: bad" + canary + "}}}":               "tenants.a.ai: api_key: it is not one",
		"tenants: {a: {webhook: {secrets: " + canary + "}}}":             "must be a list, not a word",
		"tenants: {a: {webhook: {secrets: [1, 2, " + canary + "]}}}":     "must be a list of 1 to 2",
		"tenants: {a: {ai: {api_key: 1, api_key: " + canary + "}}}":      "tenants.a.ai.api_key: duplicate field",
		"tenants: {a: {ai: &x {api_key: " + canary + "}}, b: {ai: *x}}":  "tenants.b.ai: anchors and aliases are not supported",
		"tenants: {a: {ai: !" + canary + " {api_key: x}}}":               "tenants.a.ai: tags are not supported",
		"? [" + canary + "]\n: x":                                        "the name of a field must be a word",
		"tenants: {\"a\\t\": {ai: {api_key: x}}}":                        "has control characters",
		"tenants:":                            "tenants: must not be empty",
		"tenants: {a: }":                      "tenants.a: must not be empty",
		"~":                                   "tenants: required",
		"{}":                                  "tenants: required",
		"tenants: {a: {ai: *" + canary + "}}": "not YAML",
		"tenants:\n  a: \"" + canary:          "not YAML",
		"tenants: {a: {ai: {api_key: \"" + canary + "\xff\"}}}":            "must be UTF-8",
		"tenants: {a: {ai: {api_key: " + strings.Repeat("x", 9000) + "}}}": "9000 bytes; at most 8192",
	} {
		write(t, path, text)
		_, err := Open(path, slog.New(slog.DiscardHandler), refusing)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), canary) && !strings.Contains(text, "/"+canary) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.80q: %v; want %q", text, err, want)
		}
	}
	if _, err := Open(path+"?", slog.New(slog.DiscardHandler), refusing); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestReload: changes of the file and of what it names are found; a version with a
// mistake is told of once and changes nothing.
func TestReload(t *testing.T) {
	folder := t.TempDir()
	path, key := filepath.Join(folder, "credentials.yaml"), filepath.Join(folder, "key")
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Buffer
		write(t, key, "first")
		write(t, path, "tenants: {acme: {ai: {api_key: {file: "+key+"}}}}")
		s, err := Open(path, slog.New(slog.NewTextHandler(&log, nil)), refusing)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		after := func(change func(), want, says string) {
			t.Helper()
			log.Reset()
			change()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			got := "held"
			if secrets, err := s.For("ai", "acme"); err == nil && secrets != nil {
				got = secrets.Get("api_key")
			} else if err == nil {
				got = "the worker's"
			}
			if got != want || strings.Count(log.String(), "\n") != strings.Count(says, "|")+1 && says != "" || says == "" && log.String() != "" {
				t.Errorf("%s, want %s:\n%s", got, want, log.String())
			}
			for part := range strings.SplitSeq(says, "|") {
				if !strings.Contains(log.String(), part) {
					t.Errorf("%s; want %q", log.String(), part)
				}
			}
			if strings.Contains(log.String(), canary) {
				t.Errorf("it tells a secret: %s", log.String())
			}
		}
		after(func() {}, "first", "")
		after(func() { write(t, key, "second") }, "second", "in force")
		after(func() { write(t, key, "bad"+canary) }, "second", "was not taken")
		after(func() {}, "second", "")
		after(func() { // in many small steps
			for n := range 5 {
				write(t, key, "bad"+strings.Repeat("x", n))
				time.Sleep(600 * time.Millisecond)
			}
			write(t, key, "second again")
		}, "second again", "in force")
		after(func() { write(t, key, "third one") }, "third one", "in force")
		after(func() { write(t, path, "tenants: ["+canary) }, "third one", "was not taken")
		after(func() { os.Remove(path) }, "third one", "was not taken")
		after(func() { write(t, path, "tenants: {acme: {ai: {api_key: {file: "+key+"}}}} # again") }, "third one", "in force")
		after(func() {
			if err := os.Rename(key, key+".before"); err != nil {
				t.Fatal(err)
			}
			write(t, key, "opened late")
			openfiles.None(t, func() {
				time.Sleep(10 * time.Second)
				synctest.Wait()
			})
		}, "opened late", "too many open files|in force")
		after(func() { os.Remove(key) }, "held", "in force|jobs wait for its credentials")
		after(func() { write(t, key, "fourth") }, "fourth", "in force")
		after(func() {
			if err := os.Chmod(key, 0o644); err != nil {
				t.Fatal(err)
			}
		}, "fourth", "in force|OTHERS CAN READ OR CHANGE: chmod 600 it, or 640\" file="+key+" mode=0644")
		after(func() { write(t, key, "fifth key") }, "fifth key", "in force")
		after(func() { write(t, path, "tenants: {}") }, "the worker's", "in force")
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// FuzzFile: no text that is not a tenant's name comes back.
func FuzzFile(f *testing.F) {
	f.Add("tenants: {a: {ai: {api_key: CANARY}}}")
	f.Add("tenants:\n  a:\n    webhook:\n      secrets: [CANARY, {env: X}]\n")
	path := filepath.Join(f.TempDir(), "credentials.yaml")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		v, err := read(path, func(string, *Secrets) error { return nil })
		if err == nil && v.tenants == nil {
			t.Error("neither an error nor tenants")
		}
	})
}
