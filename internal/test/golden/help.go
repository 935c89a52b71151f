package golden

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Help compares the help of each command of a program with that in testdata/help, so that a change of
// it is read. run runs the program.
func Help(t *testing.T, program *cobra.Command, run func(args ...string) (out, errText string, code int)) {
	t.Helper()
	seen := map[string]bool{}
	var each func(cmd *cobra.Command, args []string)
	each = func(cmd *cobra.Command, args []string) {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			return
		}
		path := filepath.Join("testdata", "help", strings.Join(append([]string{program.Name()}, args...), "-")+".txt")
		seen[path] = true
		out, errText, code := run(append(args[:len(args):len(args)], "--help")...)
		if errText != "" || code != 0 {
			t.Errorf("%v: %s, exit %d", args, errText, code)
		}
		File(t, path, out)
		for _, next := range cmd.Commands() {
			each(next, append(args[:len(args):len(args)], next.Name()))
		}
	}
	each(program, nil)
	files, err := filepath.Glob(filepath.Join("testdata", "help", "*.txt"))
	if err != nil || len(files) != len(seen) {
		t.Errorf("%d files for %d commands, %v", len(files), len(seen), err)
	}
}
