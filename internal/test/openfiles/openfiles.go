//go:build unix

// Package openfiles keeps a test's process from opening files.
package openfiles

import (
	"syscall"
	"testing"
)

// None calls do while no file can be opened, as in a process that has too many open. Tests that run beside it would fail.
func None(t testing.TB, do func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	}()
	do()
}
