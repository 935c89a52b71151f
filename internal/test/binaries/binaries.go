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

// Build builds the packages into a folder. It does not use the race detector, because programs
// run as processes are often measured. root is the path from the test to the repository.
func Build(dir, root string, packages ...string) error {
	if err := readSources(root); err != nil {
		return err
	}
	build := exec.Command("go", append([]string{"build", "-o", dir + "/"}, packages...)...)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
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
