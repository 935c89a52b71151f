package openapitest

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	esbuild "github.com/evanw/esbuild/pkg/api"

	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/internal/payloads"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

const (
	examples = "../../../docs/examples/"
	expected = "waiting 20" // and the rest of the time at which the job is expected to go
)

// The examples of docs/api.md do what they say, each twice: with a key, and the
// second time finding what the first one left.
func TestExamples(t *testing.T) {
	for name, example := range map[string]struct {
		runtime string
		args    func(t *testing.T) []string
		wants   []string
	}{
		"curl": {"curl", func(*testing.T) []string { return []string{"sh", examples + "client.sh"} }, []string{
			`"state":"waiting"`, `"accepted":2,"existing":0`, `"tenant":"acme"`, `"waiting":3`,
		}},
		"Python": {"python3", func(*testing.T) []string { return []string{"python3", examples + "client.py"} }, []string{
			"enqueued ", expected, "again True True", "batch 3 0", "why acme's webhook", "refused 400 invalid payload",
		}},
		"TypeScript": {"node", compiled, []string{
			"enqueued ", expected, "again true true", "batch 3 0", "why acme's webhook", "refused 400 invalid payload",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(example.runtime); err != nil {
				t.Logf("not run: there is no %s here", example.runtime)
				return
			}
			redis := redistest.Start(t).Client()
			redistest.Serve(redis, "webhook", "webhook")
			set := limits.Set{Queues: map[string]limits.Queue{"webhook": {Kinds: []string{"webhook"}}}}
			if err := operate.Publish(t.Context(), redis, set); err != nil {
				t.Fatal(err)
			}
			secret, hash := api.NewKey()
			keys := api.NewKeys([]api.Key{{ID: "example", Hash: hash, Scopes: []api.Scope{api.Enqueue, api.Read}, Tenants: []string{"acme"}}})
			a, err := api.New(api.Config{Redis: redis, Keys: func() *api.Keys { return keys }, CheckPayload: payloads.Check, PayloadCosts: payloads.Costs})
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(a)
			defer server.Close()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- a.Run(ctx) }()
			defer func() {
				cancel()
				<-ended
			}()
			args := example.args(t)
			for round := range 2 {
				var out []byte
				for range 5 {
					cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
					cmd.Env = append(os.Environ(), "HEADGATE_URL="+server.URL, "HEADGATE_API_KEY="+secret)
					if out, err = cmd.CombinedOutput(); err != nil {
						t.Fatalf("%v\n%s", err, out)
					}
					if name == "curl" || strings.Contains(string(out), expected) {
						break
					}
					// On a busy machine, an answer may not wait for when the job is expected.
				}
				for _, want := range example.wants {
					if round == 1 {
						want = strings.Replace(want, `"accepted":2,"existing":0`, `"accepted":0,"existing":2`, 1)
					}
					if !strings.Contains(string(out), want) {
						t.Errorf("round %d lacks %q:\n%s", round, want, out)
					}
				}
			}
		})
	}
}

// compiled makes JavaScript of the TypeScript, as any bundler would.
func compiled(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(examples + "client.ts")
	if err != nil {
		t.Fatal(err)
	}
	result := esbuild.Transform(string(text), esbuild.TransformOptions{Loader: esbuild.LoaderTS, Format: esbuild.FormatESModule, Target: esbuild.ES2022})
	if len(result.Errors) > 0 {
		t.Fatal(result.Errors)
	}
	path := filepath.Join(t.TempDir(), "client.mjs")
	if err := os.WriteFile(path, result.Code, 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"node", path}
}
