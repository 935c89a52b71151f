package web_test

import (
	"bytes"
	"context"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// The committed dist is exactly what the sources build, so that nobody has to trust a build that
// cannot be reviewed. The build also checks types.
func TestDistIsWhatTheSourcesGive(t *testing.T) {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("the page is built with %s, which is not in PATH (node 20.19 or later; `make deps` installs it)", program)
		}
	}
	work := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc", "tsconfig.json", "vite.config.ts", "trim-uplot.ts", "index.html"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(work, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"src", "public"} {
		if err := os.CopyFS(filepath.Join(work, name), os.DirFS(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"ci", "--prefer-offline", "--ignore-scripts"}, {"run", "build"}} {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		command := exec.CommandContext(ctx, "npm", args...)
		command.Dir = work
		output, err := command.CombinedOutput()
		cancel()
		if err != nil {
			t.Fatalf("npm %s: %v\n%s", args[0], err, output)
		}
	}
	built, committed := read(t, filepath.Join(work, "dist")), read(t, "dist")
	for _, name := range slices.Sorted(maps.Keys(built)) {
		if have, ok := committed[name]; !ok {
			t.Errorf("dist/%s is not committed: run `npm run build` in dashboard/web", name)
		} else if !bytes.Equal(have, built[name]) {
			t.Errorf("dist/%s differs from the build of the sources: run `npm run build` in dashboard/web", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(committed)) {
		if _, ok := built[name]; !ok {
			t.Errorf("dist/%s is left over from an earlier build", name)
		}
	}
}

func read(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		all[name], err = os.ReadFile(filepath.Join(folder, name))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
