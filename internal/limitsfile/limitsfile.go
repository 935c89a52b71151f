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
	"github.com/headgate/headgate/queue"
)

// mostBytes bounds a file: some 100,000 tenants.
const mostBytes = 10 << 20

// Problem is one mistake in a file.
type Problem = strictyaml.Problem

// Error is every mistake of a file, in the order of its lines.
type Error = strictyaml.Error

// Read reads a file; an [Error] names every mistake in it.
func Read(path string) (queue.Limits, error) {
	data, err := load(path)
	if err != nil {
		return queue.Limits{}, fmt.Errorf("limits file: %w", err)
	}
	limits, err := Parse(data)
	if err != nil {
		return queue.Limits{}, fmt.Errorf("limits file %s:\n%w", path, err)
	}
	return limits, nil
}

// load reads a file, and of one that is too large no more than shows it.
func load(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, mostBytes+1))
}

// Parse reads a file's text.
func Parse(data []byte) (queue.Limits, error) {
	var limits queue.Limits
	err := strictyaml.Parse(data, mostBytes, "queues with their limits", func(p *strictyaml.Parser, root *yaml.Node) {
		limits = (&parser{p}).file(root)
	})
	if err != nil {
		return queue.Limits{}, err
	}
	return limits, nil
}
