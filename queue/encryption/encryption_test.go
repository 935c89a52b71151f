package encryption

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// line returns a key with this id, as Parse reads it.
func line(id string) string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return id + ":" + base64.StdEncoding.EncodeToString(key)
}

func parse(t *testing.T, lines ...string) *Keys {
	t.Helper()
	k, err := Parse(strings.Join(lines, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var place = Place{"webhook", "id-1", "payload"}

func TestKeys(t *testing.T) {
	text := []byte(`{"to":"ann@example.com"}`)
	old, next := line("2025"), line("2026")
	first := parse(t, old)
	sealed := first.Encrypt(text, place)
	if !Encrypted(sealed) || bytes.Contains(sealed, []byte("ann")) || !bytes.Contains(sealed, []byte("2025")) {
		t.Errorf("%q", sealed)
	}
	if bytes.Equal(sealed, first.Encrypt(text, place)) {
		t.Error("a text is encrypted twice in the same way")
	}
	both := parse(t, next, "", "# the one before", " "+old)
	for name, k := range map[string]*Keys{"the same key": first, "a new and the old key": both, "separated by commas": parse(t, next+","+old)} {
		if got, err := k.Decrypt(sealed, place); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	// A comment may have commas, and what follows them is not a key.
	told := parse(t, "# the keys, newest first: next:KEY, old:KEY", next, "# 2025, the one before,", old+", # the last one")
	if got, err := told.Decrypt(sealed, place); err != nil || !bytes.Equal(got, text) {
		t.Errorf("with comments: %q, %v", got, err)
	}
	if k, err := Parse("#" + next + "," + old); k != nil || err != nil {
		t.Errorf("a line that begins with # has keys: %v, %v", k, err)
	}
	if s := both.Encrypt(text, place); !bytes.Contains(s, []byte("2026")) {
		t.Errorf("the first of two keys does not encrypt: %q", s)
	}
	for name, k := range map[string]*Keys{"another key": parse(t, next), "no key": nil} {
		_, err := k.Decrypt(sealed, place)
		if missing, ok := errors.AsType[*MissingKeyError](err); !ok || missing.ID != `"2025"` || !strings.Contains(err.Error(), "HEADGATE_PAYLOAD_KEYS") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := parse(t, line("2025")).Decrypt(sealed, place); err == nil || !strings.Contains(err.Error(), "the key is another one") {
		t.Errorf("another key with the same id: %v", err)
	}
}

// TestPlaces: a text that is moved to another job, field or queue, or is changed, is not decrypted.
func TestPlaces(t *testing.T) {
	k := parse(t, line("a"))
	sealed := k.Encrypt([]byte("secret"), place)
	for _, in := range []Place{{"email", "id-1", "payload"}, {"webhook", "id-2", "payload"}, {"webhook", "id-1", "result"}} {
		if got, err := k.Decrypt(sealed, in); err == nil {
			t.Errorf("in %+v: %q", in, got)
		}
	}
	for i := len(mark); i < len(sealed); i++ {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if got, err := k.Decrypt(changed, place); err == nil {
			t.Errorf("with byte %d changed: %q", i, got)
		}
		if got, err := k.Decrypt(sealed[:i], place); err == nil {
			t.Errorf("cut after %d bytes: %q", i, got)
		}
	}
}

func TestPlainTexts(t *testing.T) {
	var none *Keys
	if got := none.Encrypt([]byte("x"), place); string(got) != "x" {
		t.Errorf("without keys: %q", got)
	}
	if got := parse(t, line("a")).Encrypt(nil, place); got != nil {
		t.Errorf("nothing is encrypted as %q", got)
	}
	for _, text := range []string{"", "x", "{}", "\x00", mark[:len(mark)-1]} {
		if got, err := parse(t, line("a")).Decrypt([]byte(text), place); err != nil || string(got) != text {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// TestDigest: digests are secret with keys, and stay the same while a key is replaced.
func TestDigest(t *testing.T) {
	old, next := line("2025"), line("2026")
	var none *Keys
	digest := fmt.Sprintf("%x", parse(t, old).Digest([]byte("x")))
	if digest == fmt.Sprintf("%x", none.Digest([]byte("x"))) || digest == fmt.Sprintf("%x", parse(t, old).Digest([]byte("y"))) {
		t.Error("a digest tells its text")
	}
	for _, k := range []*Keys{parse(t, next, old), parse(t, old, next)} {
		if both := fmt.Sprintf("%x", k.Digest([]byte("x"))); both != digest {
			t.Error("with a newer key the digest is another one")
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"c2VjcmV0":                             "key 1: write ID:KEY",
		"a:c2VjcmV0":                           "key 1, a: the part after ':' is not 32 bytes in base64",
		"a:!":                                  "key 1, a: the part after ':' is not 32 bytes in base64",
		":x":                                   "key 1: write ID:KEY",
		"a b:" + strings.Repeat("A", 43) + "=": "key 1: write ID:KEY",
		line("a") + "\n" + line("a"):           "key 2: the ID a is taken",
	} {
		_, err := Parse(text)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "c2Vj") {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
	for _, text := range []string{"", "\n", "# none\n"} {
		if k, err := Parse(text); k != nil || err != nil {
			t.Errorf("%q: %v, %v", text, k, err)
		}
	}
}
