// Package binaries builds programs for tests that run them as processes.
package binaries

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build puts the programs of packages into a folder. root is the path from the test to the repository.
func Build(dir, root string, packages ...string) error {
	if err := readSources(root); err != nil {
		return err
	}
	for _, name := range packages {
		if err := Put(dir, name); err != nil {
			return err
		}
	}
	return nil
}

// Put puts the program of a package into a folder. It does not use the race detector, because programs
// run as processes are often measured.
func Put(dir, name string) error {
	// Of what go build links, nothing is kept for the next test that needs it.
	run := exec.Command("go", "run", "-exec", `sh -c 'cp "$0" "$HEADGATE_TEST_PROGRAMS"'`, name)
	run.Env = append(os.Environ(), "HEADGATE_TEST_PROGRAMS="+dir)
	if out, err := run.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// readSources reads the sources of the programs, so that the test cache depends on them: a cached
// result is valid until a file changes that the test itself has read.
func readSources(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules"):
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		switch filepath.Ext(path) {
		case ".go", ".lua", ".mod", ".sum", ".html", ".css", ".js":
			_, err = os.ReadFile(path)
		}
		return err
	})
}
