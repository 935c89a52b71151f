package queue

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var commandsOfScripts = regexp.MustCompile(`redis\.p?call\('?([A-Za-z]+)`)

// TestScriptsWriteLast: no script writes but through plan.lua, whose plans are made when
// the script has decided. Those that stand without it are short enough to be read.
func TestScriptsWriteLast(t *testing.T) {
	t.Parallel()
	alone := []string{"plan.lua", "periodic.lua", "periodic_choose.lua", "periodic_look.lua", "periodic_mark.lua", "periodic_set.lua"}
	reads := []string{"TIME", "HLEN", "MEMORY"}
	names, err := filepath.Glob("*.lua")
	if err != nil || len(names) < 20 {
		t.Fatalf("scripts: %v, %v", names, err)
	}
	for _, name := range names {
		if slices.Contains(alone, name) {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, command := range commandsOfScripts.FindAllStringSubmatch(line, -1) {
				if !slices.Contains(reads, command[1]) {
					t.Errorf("%s:%d: %s: use read, plan, count or push of plan.lua", name, i+1, strings.TrimSpace(line))
				}
			}
		}
	}
}

// TestBucketsAreWrittenLast: limits.lua writes where it saves a bucket, and nowhere else.
func TestBucketsAreWrittenLast(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../throttle/limits.lua")
	if err != nil {
		t.Fatal(err)
	}
	saves := []string{"local function text_write", "function k.save"}
	writes := []string{"SET", "DEL", "RPUSH", "LPUSH", "LTRIM", "LSET", "LREM", "PEXPIRE", "ZADD", "ZREM", "ZREMRANGEBYSCORE"}
	function, found := "", 0
	for i, line := range strings.Split(string(text), "\n") {
		if header := strings.TrimSpace(line); strings.HasPrefix(header, "local function ") || strings.HasPrefix(header, "function ") {
			function = header
		}
		for _, command := range commandsOfScripts.FindAllStringSubmatch(line, -1) {
			if !slices.Contains(writes, command[1]) {
				continue
			}
			found++
			if !slices.ContainsFunc(saves, func(save string) bool { return strings.HasPrefix(function, save) }) {
				t.Errorf("limits.lua:%d: %s writes in %s", i+1, strings.TrimSpace(line), function)
			}
		}
	}
	if found < 10 {
		t.Errorf("%d writes were found", found)
	}
}
