package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestHelp: the help of each command is that in testdata/help, so that a change of it is read.
func TestHelp(t *testing.T) {
	seen := map[string]bool{}
	var each func(cmd *cobra.Command, args []string)
	each = func(cmd *cobra.Command, args []string) {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			return
		}
		name := strings.Join(append([]string{cmd.Root().Name()}, args...), "-") + ".txt"
		seen[name] = true
		args = append(args[:len(args):len(args)], "--help")
		out, errText, code := command(t.Context(), args...)
		path := filepath.Join("testdata", "help", name)
		if *update {
			if err := os.WriteFile(path, []byte(out), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(path); err != nil || out != string(want) || code != 0 {
			t.Errorf("%v: %v, %s, exit %d, %s\nwant %s", args, err, errText, code, out, want)
		}
		for _, next := range cmd.Commands() {
			each(next, append(args[:len(args)-1:len(args)-1], next.Name()))
		}
	}
	each(root(), nil)
	files, err := filepath.Glob("testdata/help/*.txt")
	if err != nil || len(files) != len(seen) {
		t.Errorf("%d files for %d commands, %v", len(files), len(seen), err)
	}
}
