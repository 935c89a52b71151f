package queue

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/queue/internal/store"
)

var commandsOfScripts = regexp.MustCompile(`redis\.p?call\('?([A-Za-z]+)`)

// TestScriptsWriteLast: scripts write only through plan.lua, which executes the planned
// writes after the script has decided everything. The few scripts without it are short
// enough to check by reading.
func TestScriptsWriteLast(t *testing.T) {
	t.Parallel()
	alone := []string{"plan.lua", "enqueue_fresh.lua", "watch.lua", "idle.lua", "dispatch_idle.lua", "lease_idle.lua", "periodic.lua", "periodic_choose.lua", "periodic_look.lua", "periodic_mark.lua", "periodic_set.lua", "resign.lua"}
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

// TestScriptsClearWhatTheySay: gopher-lua, on which the embedded Redis runs scripts, clears the names that a script
// sets to nil and no others. Version 1.1.1 takes `x = nil` and `local y` after it for one instruction if the register of
// y is twice that of x, and clears all between.
func TestScriptsClearWhatTheySay(t *testing.T) {
	t.Parallel()
	const wrong = "local a, b, c, d = 1, 2, 3, 4\nc = nil\nlocal e\nreturn d"
	if clearsMore(t, "wrong", wrong) != 2 || clearsMore(t, "right", strings.Replace(wrong, "c = nil", "d = nil", 1)) != 0 {
		t.Error("the test does not see what it looks for")
	}
	texts := map[string]string{}
	for name, script := range store.Scripts {
		texts[name] = script.Text()
	}
	others, err := filepath.Glob("../throttle/*.lua")
	if err != nil || len(others) == 0 {
		t.Fatalf("scripts of throttle: %v, %v", others, err)
	}
	for _, name := range others {
		body, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = limitlua.NewScript(string(body)).Text()
	}
	for name, text := range texts {
		if line := clearsMore(t, name, text); line > 0 {
			lines := strings.Split(text, "\n")[line-1:]
			t.Errorf("%s: gopher-lua clears too much at\n%s\nPut a statement between them.", name, strings.Join(lines[:min(3, len(lines))], "\n"))
		}
	}
}

// clearsMore returns the line at which a function of a Lua text clears more registers than if its assignments of nil were
// of false, which no instruction joins with another one; 0: there is none.
func clearsMore(t *testing.T, name, text string) int {
	t.Helper()
	assignsNil, assignsFalse := parsed(t, name, text), parsed(t, name, text)
	assignFalse(reflect.ValueOf(assignsFalse))
	cleared := func(function *lua.FunctionProto) (all int, of map[int]int) {
		of = map[int]int{} // by line
		for i, code := range function.Code {
			n := 0
			switch a, b := int(code>>18&0xff), int(code&0x1ff); int(code >> 26) {
			case lua.OP_LOADNIL:
				n = b - a + 1
			case lua.OP_LOADBOOL:
				n = 1
			}
			all, of[function.DbgSourcePositions[i]] = all+n, of[function.DbgSourcePositions[i]]+n
		}
		return all, of
	}
	other := functions(t, name, assignsFalse)
	for i, function := range functions(t, name, assignsNil) {
		all, of := cleared(function)
		if most, single := cleared(other[i]); all > most {
			return slices.MaxFunc(slices.Collect(maps.Keys(of)), func(a, b int) int { return cmp.Compare(of[a]-single[a], of[b]-single[b]) })
		}
	}
	return 0
}

// assignFalse replaces each nil that is assigned to a declared name in a part of a syntax tree.
func assignFalse(part reflect.Value) {
	switch part.Kind() {
	case reflect.Interface, reflect.Pointer:
		if assign, is := part.Interface().(*ast.AssignStmt); is && part.Kind() == reflect.Pointer {
			for i, value := range assign.Rhs {
				if _, is := value.(*ast.NilExpr); is {
					assign.Rhs[i] = &ast.FalseExpr{}
					assign.Rhs[i].SetLine(value.Line())
				}
			}
		}
		if !part.IsNil() {
			assignFalse(part.Elem())
		}
	case reflect.Slice:
		for i := range part.Len() {
			assignFalse(part.Index(i))
		}
	case reflect.Struct:
		for _, field := range part.Fields() {
			assignFalse(field)
		}
	}
}

func parsed(t *testing.T, name, text string) []ast.Stmt {
	t.Helper()
	stmts, err := parse.Parse(strings.NewReader(text), name)
	if err != nil {
		t.Fatal(err)
	}
	return stmts
}

// functions returns the functions of a Lua text, compiled; the first is the whole.
func functions(t *testing.T, name string, stmts []ast.Stmt) (all []*lua.FunctionProto) {
	t.Helper()
	whole, err := lua.Compile(stmts, name)
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, whole)
	for i := 0; i < len(all); i++ {
		all = append(all, all[i].FunctionPrototypes...)
	}
	return all
}

// globals returns the global names in a Lua text.
func globals(t *testing.T, name, text string) (names []string) {
	t.Helper()
	for _, function := range functions(t, name, parsed(t, name, text)) {
		for _, code := range function.Code {
			if op := int(code >> 26); op == lua.OP_GETGLOBAL || op == lua.OP_SETGLOBAL {
				names = append(names, function.Constants[code&0x3ffff].String())
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
		stmts := parsed(t, name, string(text))
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
