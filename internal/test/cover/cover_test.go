package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
)

// TestPrintedScripts: what is printed of a script is printed again in the same way.
func TestPrintedScripts(t *testing.T) {
	t.Chdir("../../..")
	paths, err := scriptPaths()
	if err != nil || len(paths) < 30 {
		t.Fatal(paths, err)
	}
	nothing := func(int) string { return "" }
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		once, err := instrument(path, string(text), nothing)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := instrument(path, once, nothing)
		if err != nil || once != twice {
			t.Errorf("%s is printed in another way the second time: %v", path, err)
		}
	}
}

// TestHooks: the lines that are replaced are there.
func TestHooks(t *testing.T) {
	t.Chdir("../../..")
	if err := hooks(map[string]string{}, t.TempDir()); err != nil {
		t.Error(err)
	}
}

// TestMarks: statements of every form mean what they meant, and each that ran is marked,
// also in a script that raises.
func TestMarks(t *testing.T) {
	const text = `local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
local k = {['until'] = 1, 'a"\'\\\n', ...}
function k.sum(...) local s = 0 for _, n in ipairs({...}) do s = s + n end return s end
function k:me() return self end
local i, text = 0, (string.gsub('abc', 'b', 'B'))
repeat i = i + 1 until i == 3
while i > 0 do i = i - 1 if i == 1 then break end end
if i == 0 then
  error('not here')
elseif not (i == 1) then
  error('nor here')
else
  for n = 10, 1, -3 do i = i + n end
end
do local j = -i ^ 2 k.j = j end
answer = table.concat({fib(10), k[1], k['until'], k.sum(1, 2, 3), k:me().j, text, i, #k, tostring(k.none == nil and 1 ~= 2)}, ',')
error('the end', 0)
answer = 'never'`
	run := func(text string) (string, map[int]bool) {
		state := lua.NewState()
		defer state.Close()
		if err := state.DoString("ran = {}"); err != nil {
			t.Fatal(err)
		}
		if err := state.DoString(text); err == nil || !strings.Contains(err.Error(), "the end") {
			t.Fatalf("%v\n%s", err, text)
		}
		ran := map[int]bool{}
		state.GetGlobal("ran").(*lua.LTable).ForEach(func(line, _ lua.LValue) { ran[int(line.(lua.LNumber))] = true })
		return state.GetGlobal("answer").String(), ran
	}
	marked, err := instrument("text", text, func(line int) string { return fmt.Sprintf("ran[%d] = 1", line) })
	if err != nil {
		t.Fatal(err)
	}
	want, _ := run(text)
	got, ran := run(marked)
	if got != want || want == "" {
		t.Errorf("it answers %q, and %q when instrumented", want, got)
	}
	for line := range strings.Count(text, "\n") + 1 {
		if line++; ran[line] == (line == 9 || line == 11 || line == 12 || line == 14 || line == 18) {
			t.Errorf("line %d: ran: %v", line, ran[line])
		}
	}
}
