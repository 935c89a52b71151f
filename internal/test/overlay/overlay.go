// Package overlay makes changed copies of source files for `go build -overlay`, so that a program
// can test a changed tree without modifying files.
package overlay

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ReplaceLine returns the text with one line replaced, which must occur exactly once. Spaces and
// tabs around the line are ignored, and those before it are kept.
func ReplaceLine(text, before, after string) (string, error) {
	lines := strings.Split(text, "\n")
	at, found := 0, 0
	for i, line := range lines {
		if strings.TrimSpace(line) == before {
			at, found = i, found+1
		}
	}
	if found != 1 {
		return "", fmt.Errorf("the line occurs %d times, want once: %s", found, before)
	}
	indent := lines[at][:strings.Index(lines[at], before)]
	lines[at] = indent + after
	return strings.Join(lines, "\n"), nil
}

// Write writes the texts to dir and returns the file for `-overlay`. The keys of texts are paths
// relative to the working directory.
func Write(dir string, texts map[string]string) (string, error) {
	replace := map[string]string{}
	for path, text := range texts {
		absolute, err := filepath.Abs(path)
		if err != nil {
			return "", err
		}
		copied := filepath.Join(dir, strconv.Itoa(len(replace))+"-"+filepath.Base(path))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[absolute] = copied
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, list, 0o600)
}
