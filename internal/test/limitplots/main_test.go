package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// docs is the folder of the plots, from here.
const docs = "../../../docs"

// TestPlotsAreCurrent: the plots in docs are what the command makes today, on
// the embedded Redis and on a real one.
func TestPlotsAreCurrent(t *testing.T) {
	dir := t.TempDir()
	if err := run(t.Context(), []string{"-o", dir}, io.Discard); err != nil {
		t.Fatal(err)
	}
	made := read(t, dir)
	for name, want := range read(t, filepath.Join(docs, "limits")) {
		if !bytes.Equal(made[name], want) {
			t.Errorf("docs/limits/%s is not what the command makes: go run ./internal/test/limitplots", name)
		}
		delete(made, name)
	}
	for name := range made {
		t.Errorf("docs/limits/%s is missing: go run ./internal/test/limitplots", name)
	}
	client := redistest.Start(t).Client()
	for _, s := range scenes {
		played, err := s.play(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		if want, err := os.ReadFile(filepath.Join(docs, "limits", s.file+".svg")); err != nil || !bytes.Equal(played.draw(), want) {
			t.Errorf("%s: a redis-server lets other requests through, %v", s.file, err)
		}
	}
}

// TestPlotsAreSound: small, well-formed, and described in words.
func TestPlotsAreSound(t *testing.T) {
	plots := read(t, filepath.Join(docs, "limits"))
	if len(plots) != len(scenes)+len(others) {
		t.Errorf("%d plots of %d scenes and %d others", len(plots), len(scenes), len(others))
	}
	for name, text := range plots {
		if len(text) > 6<<10 {
			t.Errorf("%s has %d bytes", name, len(text))
		}
		elements := map[string]int{}
		for decoder := xml.NewDecoder(bytes.NewReader(text)); ; {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if start, ok := token.(xml.StartElement); ok {
				elements[start.Name.Local]++
			}
		}
		if elements["svg"] != 1 || elements["title"] != 1 || elements["desc"] != 1 || elements["path"] < 3 {
			t.Errorf("%s has %v", name, elements)
		}
	}
}

// TestTablesAreCurrent: docs/limits.md holds the tables that the command prints,
// and shows each plot.
func TestTablesAreCurrent(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(docs, "limits.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"bursts", "ranges"} {
		var table strings.Builder
		if err := run(t.Context(), []string{what}, &table); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), table.String()) {
			t.Errorf("docs/limits.md does not hold this table of `go run ./internal/test/limitplots %s`:\n%s", what, table.String())
		}
	}
	for _, s := range scenes {
		if !strings.Contains(string(page), "](limits/"+s.file+".svg)") {
			t.Errorf("docs/limits.md does not show limits/%s.svg", s.file)
		}
	}
}

// TestWeigh: what is measured differs from run to run, but not by much.
func TestWeigh(t *testing.T) {
	client := redistest.Start(t).Client()
	all := loads()
	for _, i := range []int{0, 2, len(all) - 1} {
		l := all[i]
		l.keys = 20
		if weight, err := l.weigh(t.Context(), client); err != nil || weight < 80 || weight > 2000+150*float64(l.calls*l.permits) {
			t.Errorf("%s: %v bytes, %v", l.name, weight, err)
		}
	}
}

func TestUnknownWord(t *testing.T) {
	if err := run(t.Context(), []string{"nothing"}, io.Discard); err == nil {
		t.Error("it was taken")
	}
}

// read reads all files of a folder.
func read(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, entry := range entries {
		if files[entry.Name()], err = os.ReadFile(filepath.Join(dir, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}
