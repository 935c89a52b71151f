package main

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/testlong"
)

// TestTargets is the command, or a short form of it: the same faults, with fewer jobs.
func TestTargets(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	c := config{partitions: 8, tenants: 20_000, rate: 10_000, burst: 1, load: 1.5, lost: 0.01, length: 16 * time.Second, seed: 1}
	if testlong.On() {
		c.partitions, c.tenants, c.rate, c.length = 64, 1_000_000, 100_000, 20*time.Second
	}
	err := run(c, &out)
	t.Log(out.String())
	if err != nil {
		t.Error(err)
	}
}

// TestMissedTargets: the error names each target that was missed, and no other.
func TestMissedTargets(t *testing.T) {
	good := figures{use: 0.99, jain: 0.99, traffic: 0.04, resumed: 0.5}
	var out strings.Builder
	if err := good.print(&out); err != nil {
		t.Error(err)
	}
	for want, miss := range map[string]func(f *figures){
		"use of the limit": func(f *figures) { f.use = 0.96 },
		"Jain":             func(f *figures) { f.jain = 0.97 },
		"from its share":   func(f *figures) { f.spread = 0.11 },
		"lease messages":   func(f *figures) { f.traffic = 0.06 },
		"beyond the limit": func(f *figures) { f.excess = 0.1 },
		"until a resumed":  func(f *figures) { f.resumed = 1.1 },
	} {
		f := good
		miss(&f)
		if err := f.print(&out); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v; want an error with %q alone", err, want)
		}
	}
}
