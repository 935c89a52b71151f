package store_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/queue/internal/store"
)

// TestReply: values come in their order, and a value of the wrong type is an error that
// does not contain the value.
func TestReply(t *testing.T) {
	t.Parallel()
	r := store.Read([]any{int64(1), "9007199254740993", "0.25", nil, []any{"a", int64(7)}, int64(2), int64(3)})
	if on, big, part, none := r.Flag(), r.Int(), r.Float(), r.Text(); !on || big != 9007199254740993 || part != 0.25 || none != "" {
		t.Errorf("%v, %d, %v, %q", on, big, part, none)
	}
	list := r.List()
	if text, number := list.Text(), list.Text(); text != "a" || number != "7" || list.More() || list.End() != nil {
		t.Errorf("%q, %q; the reply has more: %v", text, number, r.More())
	}
	for name, read := range map[string]func(r *store.Reply){
		"no list":        func(r *store.Reply) { r.List() },
		"no number":      func(r *store.Reply) { r.Int() },
		"no fraction":    func(r *store.Reply) { r.Float() },
		"values left":    func(r *store.Reply) {},
		"too few values": func(r *store.Reply) { _, _ = r.Text(), r.Text() },
		"after an error": func(r *store.Reply) { _, _ = r.Int(), r.Text() },
	} {
		r := store.Read([]any{"secret"})
		read(r)
		if err := r.End(); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
		if r.Int() != 0 || r.Text() != "" || r.More() {
			t.Errorf("%s: it goes on after the error", name)
		}
	}
	if err := store.Read("secret").End(); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("no list at all: %v", err)
	}
}
