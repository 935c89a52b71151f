package redisscript

import (
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
)

// TestLinked: of a library a script gets what its body reaches, in the order of the
// library, and nothing else.
func TestLinked(t *testing.T) {
	t.Parallel()
	const library = `-- a library
local ONE, TWO = 1, 2 -- more

-- says what it is
local function leaf(n)
  -- of no use: other()
  return n + TWO
end

local later
local function early() return later() end
local function later_too() return early() end
function later() return ONE end

local forms = {}
function forms.one()
  local k = {}

  function k.leaf() return leaf(1) end
  return k
end

local function other() return 'x'..leaf(1) end
`
	for body, want := range map[string]string{
		"return 1":           "",
		"return leaf(2)":     "leaf|ONE, TWO|leaf",
		"-- leaf\nreturn 1":  "",
		"return x.leaf":      "",
		"return 1 ..leaf(2)": "leaf|ONE, TWO|leaf",
		"return later_too()": "later_too|ONE, TWO|later|early|later_too|later",
		"return forms.one()": "forms|ONE, TWO|leaf|forms.one",
		"return other()":     "other|ONE, TWO|leaf|other",
	} {
		script := New(body, library).Text()
		var got []string
		for line := range strings.Lines(script) {
			name, found := strings.CutPrefix(line, "local ")
			name, function := strings.CutPrefix(name, "function ")
			if found || function {
				name, _, _ = strings.Cut(strings.TrimSpace(name), "(")
				name, _, _ = strings.Cut(name, " =")
				got = append(got, name)
			}
		}
		if strings.Join(got, "|") != want || !strings.HasSuffix(script, strings.TrimPrefix(body, "-- leaf\n")+"\n") {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
}

// TestBlocks: after a library only the names that are used after it are left, with what the library
// gave them.
func TestBlocks(t *testing.T) {
	t.Parallel()
	const first = `local ONE, TWO = 1, 2
local counts = {}
local hook -- set below
local known;
local function own() return ONE end
local function two() return hook() + own() end
function hook() return ONE end
function known() return ONE end
function counts.all() return two() end
`
	const second = `local function sum() return counts.all() + two() end
local function twice() return 2 * sum() end
`
	script := New("return twice() + TWO * known()", first, second).Text()
	if strings.Contains(script, "\n;") { // gopher-lua accepts it, Redis does not
		t.Errorf("an empty statement in\n%s", script)
	}
	state := lua.NewState()
	defer state.Close()
	if err := state.DoString(script); err != nil {
		t.Fatalf("%v in\n%s", err, script)
	}
	if got := state.Get(-1); got != lua.LNumber(10) {
		t.Errorf("%v, want 10, of\n%s", got, script)
	}
	for name, want := range map[string]bool{"twice": true, "two": true, "ONE": true, "TWO": true, "counts": true, "known": true, "own": false, "hook": false, "sum": false} {
		if err := state.DoString(strings.Replace(script, "return twice() + TWO * known()", "return "+name+" ~= nil", 1)); err != nil {
			t.Fatal(err)
		}
		if got := state.Get(-1); got != lua.LBool(want) {
			t.Errorf("%s can be used after the libraries: %v, want %v", name, got, want)
		}
	}
}

// TestLinkedWhenUsed: a program that starts does not link the scripts that it does not use.
func TestLinkedWhenUsed(t *testing.T) {
	library := strings.Repeat("local function twice(n) return 2 * n end\n", 1000)
	made := testing.AllocsPerRun(10, func() {
		New("return twice(1)", library).Else(New("return 1", library)).AllowOOM()
	})
	linked := testing.AllocsPerRun(10, func() {
		library += "local again = twice\n"
		New("return twice(1)", library).Text()
	})
	if made > 30 || linked < 1000 {
		t.Errorf("three scripts take %.0f allocations, and one that is linked %.0f", made, linked)
	}
}
