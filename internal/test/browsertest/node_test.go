package browsertest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// scenarioTimeout is far beyond what any scenario takes.
const scenarioTimeout = 20 * time.Minute

const install = "these tests need Node 20 or later, npm and Chromium: scripts/install-test-deps.sh installs them"

// tools are the programs that the tests run.
var tools = sync.OnceValues(func() (found struct{ node, chromium string }, err error) {
	if found.node, err = exec.LookPath("node"); err != nil {
		return found, errors.New("no node in PATH; " + install)
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return found, errors.New("no npm in PATH; " + install)
	}
	const onMac = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", onMac} {
		if found.chromium, err = exec.LookPath(name); err == nil {
			return found, packages()
		}
	}
	return found, errors.New("no chromium in PATH; " + install)
})

// packages installs what package-lock.json names, unless it is there. npm writes
// what it installed into a file beside it, and so do we: of one that was
// interrupted there is none.
func packages() error {
	want, err := os.ReadFile("package-lock.json")
	if err != nil {
		return err
	}
	const stamp = "node_modules/.installed.json"
	if got, err := os.ReadFile(stamp); err == nil && bytes.Equal(got, want) {
		return nil
	}
	if out, err := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund").CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci in internal/test/browsertest: %w\n%s", err, out)
	}
	return os.WriteFile(stamp, want, 0o600)
}

// toChromium is what the browser ends with: a pipe that nothing closes but the end
// of this process.
var toChromium io.Closer

// chromium is the one browser of all tests.
var chromium = sync.OnceValues(func() (ws string, err error) {
	found, err := tools()
	if err != nil {
		return "", err
	}
	cmd := exec.Command(found.node, "lib/browser.mjs")
	cmd.Env = append(os.Environ(), "CHROMIUM="+found.chromium)
	if toChromium, err = cmd.StdinPipe(); err != nil {
		return "", err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	var said struct{ WS, Error string }
	if err := json.NewDecoder(out).Decode(&said); err != nil || said.WS == "" {
		return "", fmt.Errorf("%s does not start: %s", found.chromium, cmp.Or(said.Error, fmt.Sprint(err)))
	}
	return said.WS, nil
})

// run is one run of a scenario.
type run struct {
	base    string // of the page
	given   any    // what the scenario is told
	control map[string]func(args json.RawMessage) (any, error)
	env     []string
}

// scenario runs a file of scenarios; each of its tests is a test of Go.
func scenario(t *testing.T, file string, r run) {
	t.Helper()
	results, said, err := r.node(t, file)
	for _, result := range results {
		t.Run(result.Name, func(t *testing.T) {
			if result.Error != "" {
				t.Error(result.Error)
			}
		})
	}
	switch {
	case len(results) == 0:
		t.Errorf("%s ran no test: %v\n%s", file, err, said)
	case err != nil && !t.Failed():
		t.Errorf("%s: %v\n%s", file, err, said)
	}
}

// result is what came of one test of Node.
type result struct{ Name, Error string }

func (r run) node(t testing.TB, file string) (results []result, said string, err error) {
	t.Helper()
	ws, err := chromium()
	if err != nil {
		t.Fatalf("browsertest: %v", err)
	}
	found, _ := tools() // chromium would have failed, too
	given, err := json.Marshal(r.given)
	if err != nil {
		t.Fatal(err)
	}
	control := httptest.NewServer(http.HandlerFunc(r.answer))
	defer control.Close()
	ctx, cancel := context.WithTimeout(t.Context(), scenarioTimeout)
	defer cancel()
	reporter, err := filepath.Abs("lib/reporter.mjs")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, found.node, "--test-reporter="+(&url.URL{Scheme: "file", Path: reporter}).String(), filepath.Join("scenarios", file))
	cmd.Env = append(os.Environ(), "BROWSER_WS="+ws, "BASE_URL="+r.base, "CONTROL_URL="+control.URL, "GIVEN="+string(given),
		"FAILED_DIR="+filepath.Join(os.TempDir(), "headgate-browsertest"))
	cmd.Env = append(cmd.Env, r.env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	for line := range strings.Lines(stdout.String()) {
		var one result
		if json.Unmarshal([]byte(line), &one) == nil && one.Name != "" {
			results = append(results, one)
		} else {
			stderr.WriteString(line)
		}
	}
	return results, stderr.String(), err
}

// answer does what a scenario asks for.
func (r run) answer(w http.ResponseWriter, request *http.Request) {
	name := strings.TrimPrefix(request.URL.Path, "/")
	do := r.control[name]
	if do == nil {
		http.Error(w, fmt.Sprintf("the test does not know how to %q", name), http.StatusNotFound)
		return
	}
	args, err := io.ReadAll(request.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := do(args)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if answer != nil {
		_ = json.NewEncoder(w).Encode(answer) // a scenario that has gone has failed
	}
}
