package rediskey

import (
	"regexp"
	"testing"

	"pgregory.net/rapid"
)

// TestEscape: what comes out is harmless, and no two texts come out the same.
func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "a-Z_0.9~@": "a-Z_0.9~@", "{}": "%7B%7D", "*?[]": "%2A%3F%5B%5D", "%": "%25", "%7B": "%257B",
		"a:b": "a%3Ab", "a\nb": "a%0Ab", "\x00": "%00", "ü": "%C3%BC", "\xff": "%FF",
	} {
		if got := Escape(text); got != want {
			t.Errorf("Escape(%q) = %q, want %q", text, got, want)
		}
	}
	harmless := regexp.MustCompile(`^[A-Za-z0-9._~@%-]*$`)
	hostile := rapid.OneOf(rapid.String(), rapid.StringOfN(rapid.SampledFrom([]rune("a:{}%*\n4B")), 0, 12, -1))
	rapid.Check(t, func(t *rapid.T) {
		a, b := hostile.Draw(t, "a"), hostile.Draw(t, "b")
		if (Escape(a) == Escape(b)) != (a == b) {
			t.Fatalf("%q and %q come out as %q and %q", a, b, Escape(a), Escape(b))
		}
		if !harmless.MatchString(Escape(a)) {
			t.Fatalf("%q comes out as %q", a, Escape(a))
		}
	})
}
