package golden

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// failures is a test that goes on after it failed.
type failures struct {
	testing.TB
	text []string
}

func (f *failures) Helper() {}

func (f *failures) Errorf(format string, args ...any) {
	f.text = append(f.text, fmt.Sprintf(format, args...))
}

// TestPart: a part that is another one fails the test, unless it is to be written; what is around it stays.
func TestPart(t *testing.T) {
	defer func(was bool) { *update = was }(*update)
	page := filepath.Join(t.TempDir(), "page.md")
	const around = "one\n<!-- table -->\n%s<!-- end table -->\ntwo\n<!-- other -->\nx\n<!-- end other -->\n"
	if err := os.WriteFile(page, fmt.Appendf(nil, around, "old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		update bool
		want   string
		fails  int
		after  string
	}{
		{false, "old\n", 0, "old\n"},
		{false, "new\n", 1, "old\n"},
		{true, "new\n", 0, "new\n"},
		{false, "new\n", 0, "new\n"},
		{false, "old\n", 1, "new\n"},
	} {
		f := &failures{TB: t}
		*update = step.update
		Part(f, page, "table", step.want)
		if len(f.text) != step.fails {
			t.Errorf("%+v: %q", step, f.text)
		}
		if text, err := os.ReadFile(page); err != nil || string(text) != fmt.Sprintf(around, step.after) {
			t.Errorf("%+v: %v, %s", step, err, text)
		}
	}
}
