// Package golden compares what tests generate with the files that have it, and writes these files
// with -update.
package golden

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the files, and the parts of docs, that tests generate or measure")

// Update reports whether files are to be written.
func Update() bool { return *update }

// File compares a text with that of a file.
func File(t testing.TB, path, want string) {
	t.Helper()
	if *update {
		write(t, path, want)
		return
	}
	if got := read(t, path); got != want {
		t.Errorf("%s is\n%s\nwant\n%s\nwritten by go test -run %s -update", path, got, want, t.Name())
	}
}

// Part compares a text with the part of a page between the comments NAME and end NAME.
func Part(t testing.TB, page, name, want string) {
	t.Helper()
	if *update {
		WritePart(t, page, name, want)
		return
	}
	if got := ReadPart(t, page, name); got != want {
		t.Errorf("%s of %s is\n%s\nwant\n%s\nwritten by go test -run %s -update", name, page, got, want, t.Name())
	}
}

// ReadPart returns that part of a page.
func ReadPart(t testing.TB, page, name string) string {
	t.Helper()
	_, part, _ := cut(t, page, name)
	return part
}

// WritePart replaces that part of a page.
func WritePart(t testing.TB, page, name, text string) {
	t.Helper()
	before, _, after := cut(t, page, name)
	write(t, page, before+text+after)
}

func cut(t testing.TB, page, name string) (before, part, after string) {
	t.Helper()
	first, last := "<!-- "+name+" -->\n", "<!-- end "+name+" -->\n"
	before, rest, begins := strings.Cut(read(t, page), first)
	part, after, ends := strings.Cut(rest, last)
	if !begins || !ends {
		t.Fatalf("%s has no %q before %q", page, first, last)
	}
	return before + first, part, last + after
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
