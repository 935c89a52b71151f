package queue

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"

	"github.com/headgate/headgate/queue/internal/store"
)

var commandsOfScripts = regexp.MustCompile(`redis\.p?call\('?([A-Za-z]+)`)

// TestScriptsWriteLast: scripts write only through plan.lua, which executes the planned
// writes after the script has decided everything. The few scripts without it are short
// enough to check by reading.
func TestScriptsWriteLast(t *testing.T) {
	t.Parallel()
	alone := []string{"plan.lua", "enqueue_fresh.lua", "periodic.lua", "periodic_choose.lua", "periodic_look.lua", "periodic_mark.lua", "periodic_set.lua", "resign.lua"}
	reads := []string{"TIME", "HLEN", "MEMORY"}
	names, err := filepath.Glob("internal/*/*.lua")
	if err != nil || len(names) < 30 {
		t.Fatalf("scripts: %v, %v", names, err)
	}
	for _, name := range names {
		if slices.Contains(alone, filepath.Base(name)) {
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
	text, err := os.ReadFile("../internal/limitlua/limits.lua")
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

// TestScriptsNameWhatTheyUse: every name that a script uses is declared before it. Redis
// would find a missing one only when the line runs.
func TestScriptsNameWhatTheyUse(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("internal/store/scripts.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(regexp.MustCompile(`(?m)^\t\w+Script += `).FindAll(text, -1)); n != len(store.Scripts) || n < 20 {
		t.Errorf("store has %d scripts, and Scripts %d of them", n, len(store.Scripts))
	}
	known := []string{
		"ARGV", "KEYS", "cjson", "error", "ipairs", "math", "next", "pairs", "pcall", "redis", "select", "string", "table",
		"tonumber", "tostring", "type", "unpack",
	}
	for name, script := range store.Scripts {
		for _, global := range globals(t, name, script.Text()) {
			if !slices.Contains(known, global) {
				t.Errorf("%s: %s is not declared", name, global)
			}
		}
	}
}

// globals returns the global names in a Lua text.
func globals(t *testing.T, name, text string) (names []string) {
	stmts, err := parse.Parse(strings.NewReader(text), name)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := lua.Compile(stmts, name)
	if err != nil {
		t.Fatal(err)
	}
	functions := []*lua.FunctionProto{whole}
	for len(functions) > 0 {
		one := functions[0]
		functions = append(functions[1:], one.FunctionPrototypes...)
		for _, code := range one.Code {
			if op := int(code >> 26); op == lua.OP_GETGLOBAL || op == lua.OP_SETGLOBAL {
				names = append(names, one.Constants[code&0x3ffff].String())
			}
		}
	}
	return names
}

// TestLibrariesDeclare: a library has only declarations at the start of a line, without
// effects, so that a script can be linked with those that it uses, and no name of another one,
// because it is declared before all of the library (internal/redisscript/link.go).
func TestLibrariesDeclare(t *testing.T) {
	t.Parallel()
	declared := map[string]string{}
	for _, name := range []string{
		"../internal/limitlua/limits.lua", "internal/store/plan.lua", "internal/asynqwire/asynq.lua", "internal/store/formats.lua", "internal/store/lanes.lua", "internal/asynqwire/message.lua",
		"internal/store/record.lua", "internal/store/end.lua", "internal/store/hand.lua", "internal/store/periodic.lua", "internal/store/cancel.lua",
		"internal/store/lead.lua", "internal/store/leases.lua",
	} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		stmts, err := parse.Parse(strings.NewReader(string(text)), name)
		if err != nil {
			t.Fatal(err)
		}
		begins := 0
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "local ") || strings.HasPrefix(line, "function ") {
				begins++
			}
		}
		if begins != len(stmts) {
			t.Errorf("%s: %d statements, but %d lines begin with one", name, len(stmts), begins)
		}
		for _, stmt := range stmts {
			switch s := stmt.(type) {
			case *ast.FuncDefStmt:
				continue
			case *ast.LocalAssignStmt:
				for _, declares := range s.Names {
					if other, found := declared[declares]; found {
						t.Errorf("%s:%d: %s is declared in %s too", name, stmt.Line(), declares, other)
					}
					declared[declares] = name
				}
				calls := slices.ContainsFunc(s.Exprs, func(e ast.Expr) bool {
					call, is := e.(*ast.FuncCallExpr)
					if !is {
						return false
					}
					function, is := call.Func.(*ast.IdentExpr)
					return !is || function.Value != "tonumber"
				})
				if !calls {
					continue
				}
			}
			t.Errorf("%s:%d: not a declaration", name, stmt.Line())
		}
	}
}
