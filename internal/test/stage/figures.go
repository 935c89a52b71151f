package stage

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Figures returns the part of a page in docs between the comments NAME and end NAME.
func Figures(t testing.TB, page, name string) string {
	t.Helper()
	_, text, _ := place(t, page, name)
	return string(text)
}

// WriteFigures replaces that part.
func WriteFigures(t testing.TB, page, name, text string) {
	t.Helper()
	head, _, tail := place(t, page, name)
	if err := os.WriteFile(path(page), slices.Concat(head, []byte(text), tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

func path(page string) string { return filepath.Join("..", "..", "..", "docs", page) }

func place(t testing.TB, page, name string) (head, text, tail []byte) {
	t.Helper()
	whole, err := os.ReadFile(path(page))
	if err != nil {
		t.Fatal(err)
	}
	first, last := []byte("<!-- "+name+" -->\n"), []byte("<!-- end "+name+" -->")
	head, rest, ok := bytes.Cut(whole, first)
	text, tail, end := bytes.Cut(rest, last)
	if !ok || !end {
		t.Fatalf("docs/%s has no place for the figures of %s", page, name)
	}
	return slices.Concat(head, first), text, slices.Concat(last, tail)
}
