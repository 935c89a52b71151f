package api

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
)

// FuzzJob: what is refused is refused with words, and what is taken says whose it is.
func FuzzJob(f *testing.F) {
	f.Add([]byte(`{"kind":"call","tenant":"acme","payload":1}`), "key")
	f.Add([]byte(`{"kind":"call","tenant":"acme","payload":{},"on_success":{"kind":"b","tenant":"globex","payload":1}}`), "")
	f.Add([]byte(`{"kind":"call","tenant":"acme","payload":1,"at":"2030-01-01T00:00:00Z","costs":{"a":1}}`), "\x00")
	a := &API{client: queue.NewClient(redistest.Embedded(f))}
	f.Fuzz(func(t *testing.T, text []byte, key string) {
		job, err := a.jobOf(context.Background(), caller{key: Key{ID: "a", Tenants: []string{"acme"}}}, text, &key)
		if err != nil {
			p := problemOf(err)
			if p.Status < 400 || p.Status >= 500 || p.Detail == "" || strings.Contains(p.Detail, "\n") {
				t.Errorf("%q: %d %q", text, p.Status, p.Detail)
			}
			return
		}
		for next := &job; next != nil; next = next.OnSuccess {
			if next.Tenant != "acme" && (next == &job || next.Tenant != "") {
				t.Errorf("a key for acme may enqueue for %q", next.Tenant)
			}
		}
	})
}

// FuzzBatch: an array of jobs ends, whatever it holds, and no job is without a fate.
func FuzzBatch(f *testing.F) {
	f.Add([]byte(`{"jobs":[{"kind":"call","tenant":"acme","payload":1},{}]}`))
	f.Add([]byte(`{"jobs":[[],null,1,"x"]} `))
	f.Add([]byte(`{"jobs":[`))
	f.Fuzz(func(t *testing.T, text []byte) {
		from := &arraySource{decoder: json.NewDecoder(strings.NewReader(string(text)))}
		for n := 0; ; n++ {
			if _, err := from.Next(); err != nil {
				if p := problemOf(err); err != io.EOF && p.Status != 400 {
					t.Errorf("%q: %v", text, err)
				}
				return
			}
			if n > len(text) {
				t.Fatalf("%q does not end", text)
			}
		}
	})
}

// FuzzBody: a body is taken only if each of its fields is one of the action's.
func FuzzBody(f *testing.F) {
	f.Add([]byte(`{"verb":"cancel","tenant":"acme","dry_run":true,"reason":"x"}`))
	f.Add([]byte(`{"rate":"1/s","for":"1e3","until":"2030-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"verb":1}{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, into := range []any{new(action), new(pauseBody), new(limitBody), new(estimateBody), new(takeBody)} {
			err := decodeText(text, into)
			if err != nil {
				if p := problemOf(err); p.Status != 400 || p.Detail == "" {
					t.Errorf("%q: %d %v", text, p.Status, err)
				}
				continue
			}
			var any map[string]json.RawMessage
			if json.Unmarshal(text, &any) != nil {
				t.Errorf("%q is taken", text)
			}
			if limit, ok := into.(*limitBody); ok {
				_, _ = limit.change()
				_, _ = limit.moment()
			}
		}
	})
}

// FuzzKeyText: what is no hash of a key is none.
func FuzzKeyText(f *testing.F) {
	_, hash := NewKey()
	f.Add(hash.String())
	f.Add("sha256:00")
	f.Fuzz(func(t *testing.T, text string) {
		if hash, err := ParseHash(text); err == nil && !strings.EqualFold(hash.String(), text) {
			t.Errorf("%q is read as %s", text, hash)
		}
	})
}
