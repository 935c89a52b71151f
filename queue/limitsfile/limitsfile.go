// Package limitsfile reads the file that says how fast each queue may go.
//
// Reading is strict: an unknown field is a mistake, not a comment, and all
// mistakes are reported at once, each with its line and what was probably
// meant. A file with one mistake changes nothing.
package limitsfile

import (
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/strictyaml"
	"github.com/headgate/headgate/queue/limits"
)

// maxBytes bounds a file: some 100,000 tenants.
const maxBytes = 10 << 20

// Problem is one mistake in a file.
type Problem = strictyaml.Problem

// Error is every mistake of a file, in the order of its lines.
type Error = strictyaml.Error

// Read reads a file; an [Error] names every mistake in it.
func Read(path string) (limits.Set, error) {
	data, err := load(path)
	if err != nil {
		return limits.Set{}, fmt.Errorf("limits file: %w", err)
	}
	set, err := Parse(data)
	if err != nil {
		return limits.Set{}, fmt.Errorf("limits file %s:\n%w", path, err)
	}
	return set, nil
}

// load reads a file, and of one that is too large no more than shows it.
func load(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxBytes+1))
}

// Parse reads a file's text.
func Parse(data []byte) (limits.Set, error) {
	var set limits.Set
	err := strictyaml.Parse(data, maxBytes, "queues with their limits", func(p *strictyaml.Parser, root *yaml.Node) {
		set = (&parser{p}).file(root)
	})
	if err != nil {
		return limits.Set{}, err
	}
	return set, nil
}
