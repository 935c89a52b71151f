package asynqwire_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNobodyElseKnowsAsynqsKeys: a key of asynq is written in this package alone.
func TestNobodyElseKnowsAsynqsKeys(t *testing.T) {
	const root = "../../.."
	key := regexp.MustCompile("[\"'`]asynq:")
	here := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if entry.IsDir() {
			switch rel { // benchmarks also measure asynq itself
			case "bench", "dashboard/web", ".git", "internal/test":
				return fs.SkipDir
			}
			return nil
		}
		if ext := filepath.Ext(rel); ext != ".go" && ext != ".lua" || strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !key.Match(text) {
			return err
		}
		if filepath.Dir(rel) == "queue/internal/asynqwire" {
			here++
		} else {
			t.Errorf("%s has a key of asynq", rel)
		}
		return nil
	})
	if err != nil || here == 0 {
		t.Errorf("%d files here, %v", here, err)
	}
}
