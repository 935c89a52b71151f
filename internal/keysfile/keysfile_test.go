package keysfile

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/internal/test/logtest"
	"github.com/headgate/headgate/internal/test/openfiles"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/throttle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const someHash = "sha256:354144731f6c69697fe440e403ffdb31c1d0c16c9c9f1bf5e80a48a4ddaee41c"

const good = `keys:
  - id: shop
    hash: "` + someHash + `"
    scopes: [enqueue, read]
    tenants: [acme, "we: ird"]
    rate: 100/s
    expires: 2027-01-31T00:00:00Z
  - {id: ops, hash: sha256:00000000000000000000000000000000000000000000000000000000000000ff, scopes: [admin]}
`

func TestParse(t *testing.T) {
	keys, err := Parse([]byte(good))
	if err != nil || len(keys) != 2 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	shop := keys[0]
	if shop.ID != "shop" || shop.Hash.String() != someHash || len(shop.Scopes) != 2 || shop.Tenants[1] != "we: ird" ||
		shop.Rate != throttle.PerSecond(100) || !shop.Expires.Equal(time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v", shop)
	}
}

// Every mistake is told with its line, and one mistake refuses the file.
func TestMistakes(t *testing.T) {
	for text, wants := range map[string][]string{
		"":         {"empty; add keys"},
		"keys: []": {"line 1: keys: required"},
		"key: []":  {`line 1: key: unknown field; did you mean "keys"?`},
		strings.Replace(good, "scopes: [enqueue, read]", "scopes: [enqeue, root]", 1): {
			`line 4: keys[0].scopes: "enqeue" is not a scope: use read, enqueue, operate, admin; did you mean "enqueue"?`, `"root" is not a scope`,
		},
		strings.Replace(good, someHash, "hg_abc", 1):                 {`line 3: keys[0].hash: is not sha256:`},
		strings.Replace(good, "    hash: \""+someHash+"\"\n", "", 1): {"line 2: keys[0].hash: is required"},
		strings.Replace(good, "id: ops", "id: shop", 1):              {`keys[1].id: another key is "shop", too`},
		strings.Replace(good, `[acme, "we: ird"]`, "[]", 1):          {"line 5: keys[0].tenants: it is empty, and would be taken for all"},
		strings.Replace(good, `tenants: [acme, "we: ird"]`, "queues: []\n    kinds: [a b]\n    from: ['*.example.com']", 1): {
			"line 5: keys[0].queues: it is empty", "line 6: keys[0].kinds: \"a b\" is not", "line 7: keys[0].from: \"*.example.com\" is not a domain",
		},
		strings.Replace(good, `"we: ird"]`, `"we: ird"]
    max_retention: 1h`, 1): {"line 6: keys[0].max_retention: 1h0m0s is less than 24h"},
		strings.Replace(good, `tenants: [acme, "we: ird"]`, "shared_account: true", 1): {"line 5: keys[0].shared_account: a key for all tenants has it"},
		strings.Replace(good, "[enqueue, read]", "[admin]", 1):                         {"line 4: keys[0].scopes: admin affects all tenants"},
		strings.Replace(good, `"we: ird"`, `"a\u0007"`, 1):                             {"line 5: keys[0].tenants: "},
		strings.Replace(good, "100/s", "fast", 1):                                      {"line 6: keys[0].rate: "},
		strings.Replace(good, "2027-01-31T00:00:00Z", "soon", 1):                       {"line 7: keys[0].expires: "},
		strings.Replace(good, "id: shop", "id: local", 1):                              {`keys[0].id: "local" is reserved`},
		strings.Replace(good, "id: shop", "id: a b", 1):                                {"line 2: keys[0].id: "},
		strings.Replace(good, "rate: 100/s", "rat: 1/s\n    ids: x", 1):                {"keys[0].rat: unknown field", "keys[0].ids: unknown field"},
		good + "  - {id: two, hash: " + someHash + ", scopes: [read]}\n":               {`keys[2].hash: it is that of key "shop"`},
	} {
		_, err := Parse([]byte(text))
		if err == nil {
			t.Errorf("taken:\n%s", text)
			continue
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v\nwant %s", err, want)
			}
		}
	}
}

// A file that changes is taken, one with mistakes is not, and no line of the log
// has a key.
func TestStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	write := func(text string) { // in one step: an empty file is one without keys
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	secret, hash := api.NewKey()
	entry := "keys:\n  - {id: shop, hash: " + hash.String() + ", scopes: [read]}\n"
	write(entry)
	var log logtest.Buffer
	store, err := Open(path, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	store.every = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var changes []string
	go func() {
		ended <- store.Run(ctx, func(_ context.Context, before, after map[string]string) {
			changes = append(changes, fmt.Sprint(before, after))
		})
	}()
	first := store.Keys()
	write("keys: [{id: shop}]")
	waitFor(t, &log, "the keys file was not taken")
	if store.Keys() != first {
		t.Error("a file with mistakes was taken")
	}
	write(entry + "  - {id: more, hash: " + someHash + ", scopes: [read]}\n")
	waitFor(t, &log, "keys=2")
	if store.Keys() == first {
		t.Error("a change was not taken")
	}
	for what, lose := range map[string]func(){
		"emptied":      func() { write("") },
		"without keys": func() { write("# nobody any more\nkeys: []\n") },
		"gone":         func() { _ = os.Remove(path) },
	} {
		lose()
		waitFor(t, &log, "nobody has access")
		if !reflect.DeepEqual(store.Keys(), api.NewKeys(nil)) {
			t.Errorf("%s: keys are left", what)
		}
		log.Reset()
		write(entry)
		waitFor(t, &log, "keys=1")
		log.Reset()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	want := "map[] map[more:read "
	if len(changes) != 7 || !strings.HasPrefix(changes[0], want) || !strings.HasPrefix(changes[1], "map[more:read ") || !strings.HasSuffix(changes[1], "] map[]") {
		t.Errorf("%d changes: %q", len(changes), changes)
	}
	if strings.Contains(log.String()+fmt.Sprint(changes), secret) {
		t.Error("the log has a key")
	}
	if _, err := Open(path+".none", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestFileThatCannotBeOpenedOnce: the keys in force stay, and the file is read as soon as that works.
func TestFileThatCannotBeOpenedOnce(t *testing.T) { synctest.Test(t, fileThatCannotBeOpenedOnce) }

func fileThatCannotBeOpenedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	entry := "keys:\n  - {id: shop, hash: " + someHash + ", scopes: [read]}\n"
	_, hash := api.NewKey()
	for name, text := range map[string]string{path: entry, path + ".new": entry + "  - {id: more, hash: " + hash.String() + ", scopes: [read]}\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log logtest.Buffer
	store, err := Open(path, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	store.every = 5 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- store.Run(ctx, func(context.Context, map[string]string, map[string]string) {}) }()
	first := store.Keys()
	openfiles.None(t, func() {
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		waitFor(t, &log, "too many open files")
		time.Sleep(100 * time.Millisecond) // for several looks
	})
	waitFor(t, &log, "keys=2")
	if said := log.String(); strings.Count(said, "too many open files") != 1 || strings.Contains(said, "nobody has access") || store.Keys() == first {
		t.Errorf("the log has %s", said)
	}
	// Each version of a file with a mistake is said to have one, also if it is the same one.
	for n := 1; n <= 2; n++ {
		if err := os.WriteFile(path, []byte("keys: 5"+strings.Repeat(" # as before", n)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		until.Done(t, "the log has the mistake", func() bool { return strings.Count(log.String(), "was not taken") == 1+n })
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func waitFor(t *testing.T, log *logtest.Buffer, want string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(log.String(), want); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log lacks %q:\n%s", want, log)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("keys: [{id: a, hash: x, scopes: [read], tenants: [], rate: 1/s}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := Parse(text)
		for _, key := range keys {
			if problem := key.Validate(); err == nil && problem != nil {
				t.Errorf("taken: %v", problem)
			}
		}
	})
}
