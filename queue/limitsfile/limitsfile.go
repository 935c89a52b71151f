// Package limitsfile reads, checks, watches and writes limits files, which define how fast
// each queue may go.
//
// Reading is strict: unknown fields are rejected, and all mistakes are reported at once,
// each with its line and a suggestion. A file with a mistake changes nothing.
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

// Problem is one mistake in a file, with its line.
type Problem = strictyaml.Problem

// Error has all mistakes of a file, in the order of their lines.
type Error = strictyaml.Error

// Load reads a file. An [Error] has every mistake in it.
func Load(path string) (limits.Set, error) {
	data, err := readFile(path)
	if err != nil {
		return limits.Set{}, fmt.Errorf("limits file: %w", err)
	}
	set, err := Parse(data)
	if err != nil {
		return limits.Set{}, fmt.Errorf("limits file %s:\n%w", path, err)
	}
	return set, nil
}

// readFile reads a file, or as much of it as shows that it is too large.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxBytes+1))
}

// Parse reads the text of a file.
func Parse(data []byte) (limits.Set, error) {
	var set limits.Set
	err := strictyaml.Parse(data, maxBytes, "queues with their limits", func(p *strictyaml.Parser, root *yaml.Node) {
		set = (&parser{Parser: p, ofBudgets: map[string]map[string]limits.Change{}}).file(root)
	})
	if err != nil {
		return limits.Set{}, err
	}
	return set, nil
}
