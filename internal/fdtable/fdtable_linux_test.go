package fdtable

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// TestGrow: the table of open files has room for as many, and there are no more of them.
func TestGrow(t *testing.T) {
	room := func() int {
		t.Helper()
		text, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(string(regexp.MustCompile(`FDSize:\s+(\d+)`).FindSubmatch(text)[1]))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	open := func() int {
		t.Helper()
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	before, had := room(), open()
	if before >= 2000 {
		t.Fatalf("there is room for %d already", before)
	}
	Grow(2000)
	if n := room(); n < 2000 {
		t.Errorf("there is room for %d open files; want 2000", n)
	}
	if n := open(); n != had {
		t.Errorf("%d files are open; before: %d", n, had)
	}
	Grow(1 << 62) // more than a process may have
}
