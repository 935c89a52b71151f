package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/test/redistest"
)

// tutorialFile is a file in the tutorial: its name in bold, and the block that follows.
var tutorialFile = regexp.MustCompile("(?s)\\*\\*([a-z_/]+\\.(?:go|yaml))\\*\\*[^`]*```(?:go|yaml)\n(.*?)```")

// TestTutorial builds the program of the tutorial in a module of its own, runs its test, and
// checks its limits file.
func TestTutorial(t *testing.T) {
	redistest.Slow(t)
	text, err := os.ReadFile("../../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := tutorialFile.FindAllStringSubmatch(string(text), -1)
	if len(files) != 5 {
		t.Fatalf("%d files in the tutorial, want 5", len(files))
	}
	for _, m := range files {
		write(t, filepath.Join(dir, m[1]), m[2])
	}
	// The versions of the module itself, so that nothing is downloaded.
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	_, requires, _ := strings.Cut(string(mod), "\ngo ")
	write(t, filepath.Join(dir, "go.mod"), "module example.com/greetings\n\ngo "+requires+
		"\nrequire github.com/headgate/headgate v0.0.0\nreplace github.com/headgate/headgate => "+root+"\n")
	write(t, filepath.Join(dir, "go.sum"), string(sum))
	for _, args := range [][]string{
		{"go", "vet", "-mod=mod", "./..."},
		{"go", "test", "-mod=mod", "./..."},
		{"go", "run", "-C", root, "./cmd/enqueue", "limits", "check", filepath.Join(dir, "limits.yaml")},
	} {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOPROXY=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
