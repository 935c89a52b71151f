package web_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The type AuditAction lists each action that programs record in the audit. The page does not build
// without a sentence for each of them.
func TestActionsOfTheAudit(t *testing.T) {
	text := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var recorded, listed []string
	add := func(to *[]string, prefix, pattern, text string) {
		t.Helper()
		found := regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1)
		if found == nil {
			t.Errorf("nothing matches %s", pattern)
		}
		for _, match := range found {
			*to = append(*to, prefix+match[1])
		}
	}
	action := regexp.MustCompile(`\bAction: ([^,}]+)`)
	for _, folder := range []string{"cmd", "dashboard/api", "internal", "queue", "worker"} {
		err := filepath.WalkDir(filepath.Join("../..", folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source := text(path)
			if !strings.Contains(source, "AuditEntry{") {
				return nil
			}
			for _, match := range action.FindAllStringSubmatch(source, -1) {
				switch value := match[1]; value {
				case `string(verb)`:
					add(&recorded, "", `Verb = "(\w+)"`, source)
				case `"periodic " + verb`:
					add(&recorded, "periodic ", `(?:entriesCommand\(o|recordPeriodic\(cmd.Context\(\), client), "(\w+)"`, source)
				default:
					name, err := strconv.Unquote(value)
					if err != nil {
						t.Errorf("%s: which actions are %s?", path, value)
					}
					recorded = append(recorded, name)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	_, list, _ := strings.Cut(text("src/types.ts"), "export type AuditAction =")
	list, _, _ = strings.Cut(list, ";")
	add(&listed, "", `'([^']+)'`, list)
	slices.Sort(recorded)
	slices.Sort(listed)
	if recorded = slices.Compact(recorded); !slices.Equal(recorded, listed) {
		t.Errorf("recorded are %q\nAuditAction in src/types.ts has %q", recorded, listed)
	}
}
