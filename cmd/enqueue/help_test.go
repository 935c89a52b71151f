package main

import (
	"testing"

	"github.com/headgate/headgate/internal/test/golden"
)

func TestHelp(t *testing.T) {
	golden.Help(t, root(), func(args ...string) (string, string, int) { return enqueue(t, "", args...) })
}
