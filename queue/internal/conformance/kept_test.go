package conformance

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestKeptCalls: calls are read as they were written, in pieces and in any order; and other texts are none.
func TestKeptCalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		calls := rapid.SliceOf(rapid.Custom(func(t *rapid.T) Call {
			return Call{rapid.Int64Range(0, 1<<52).Draw(t, "at"), rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(0, 1<<40)).Draw(t, "n")}
		})).Draw(t, "calls")
		at := rapid.IntRange(0, len(calls)).Draw(t, "cut")
		text, last := writeCalls(0, calls[:at])
		more, _ := writeCalls(last, calls[at:])
		got, ok := readCalls(append(text, more...))
		if !ok || !slices.Equal(got, calls) {
			t.Fatalf("%v, %v; want %v", got, ok, calls)
		}
	})
	for _, text := range []string{"\x80", "\x02", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"} {
		if got, ok := readCalls([]byte(text)); ok {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

// TestHoursAreKept: the hours of a day are read as they were written.
func TestHoursAreKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := Hours{}
		type window struct{ at, n, allowed int64 }
		for range rapid.IntRange(0, 30).Draw(t, "windows") {
			w := window{rapid.Int64Range(0, Day-1).Draw(t, "at"), rapid.Int64Range(1, 20).Draw(t, "n"), rapid.Int64Range(1, 20).Draw(t, "allowed")}
			was := h.String()
			if changed := h.note(20_000*Day+w.at, w.n, w.allowed); changed != (h.String() != was) {
				t.Fatalf("%v changes %q to %q, and note returned %v", w, was, h, changed)
			}
		}
		if got := ParseHours(h.String()); got.String() != h.String() {
			t.Fatalf("%q became %q", h, got)
		}
	})
	if h := ParseHours("24 1 1;-1 1 1;3 4 5;x;5 1;6 1 1 1"); h.String() != "3 4 5" {
		t.Errorf("damaged hours: %q", h)
	}
	h := ParseHours("")
	if h.note(5*hour, 11, 10); h.String() != "5 11 10 18000000000 11 10" {
		t.Errorf("exceeded by one: %q", h)
	}
	h.note(5*hour, 12, 10)
	h.note(5*hour+1, 100, 100)
	h.note(5*hour+2, 13, 12)
	if h.String() != "5 100 100 18000000000 12 10" {
		t.Errorf("the most and the worst: %q", h)
	}
}
