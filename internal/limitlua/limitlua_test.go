package limitlua

import (
	"strings"
	"testing"
)

// TestLibraryIsOpen: a library may use what stands in front of it.
func TestLibraryIsOpen(t *testing.T) {
	t.Parallel()
	script := NewScript("return two()", "local function one() return KIND end\n", "local function two() return one() end\n").Text()
	for _, want := range []string{"local KIND = {", "local function one()", "local function two()"} {
		if !strings.Contains(script, want) {
			t.Errorf("%q is missing in\n%s", want, script)
		}
	}
	if strings.Contains(script, "limit_open") {
		t.Error("more of limits.lua than it uses")
	}
}
