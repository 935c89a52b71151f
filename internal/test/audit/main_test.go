package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDependencies: the list in the documentation is that of the modules.
func TestDependencies(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	want, err := document(root)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(root, "docs/dependencies.md"))
	if err != nil || string(got) != string(want) {
		t.Errorf("docs/dependencies.md is not up to date, run make audit: %v\n%s", err, want)
	}
	for section := range strings.SplitSeq(string(want), "\n## ") {
		if strings.HasPrefix(section, "In tests") || strings.HasPrefix(section, "Tools") {
			continue // they are not part of anything that is shipped
		}
		for _, licence := range []string{"GPL", "MPL", "SSPL", "BUSL", "Elastic"} { // they ask more than a notice
			if strings.Contains(section, licence) {
				t.Errorf("something has a licence with %s: %s", licence, section)
			}
		}
	}
}

// TestCheck: a database that cannot be reached is no failure, and a finding is one.
func TestCheck(t *testing.T) {
	for script, fails := range map[string]bool{"true": false, "echo dial tcp: lookup vuln.go.dev: no such host; exit 1": false, "echo GO-2026-1: a hole; exit 3": true} {
		if err := check("a tool", "somewhere", ".", "sh", "-c", script); (err != nil) != fails || err != nil && !strings.Contains(err.Error(), "GO-2026-1") {
			t.Errorf("%s: %v", script, err)
		}
	}
	if _, err := licenceOf(t.TempDir()); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder without a licence: %v", err)
	}
}
