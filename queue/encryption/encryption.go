// Package encryption encrypts the payloads and results of jobs, so that they cannot be read
// from Redis, its files or its backups.
//
// All programs on a Redis share [Keys]: the first one encrypts, and all of them decrypt. To change
// the key, add the new one behind the old one in all programs, then move it to the front, and
// remove the old one once nothing is encrypted with it any more.
//
// Texts are encrypted with AES-256-GCM. Each has a key of its own, which is derived with HKDF-SHA256
// from the shared key and from where the text is stored. So a text cannot be decrypted in the place
// of another one, and there is no limit to how many texts a shared key may encrypt.
package encryption

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/partition"
)

// mark begins every encrypted text. The id of its key, a zero byte and the ciphertext follow.
const mark = "\x00hg1:"

var idPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,32}$`)

// Keys are the keys of a program. nil means none: texts are stored as they are.
type Keys struct {
	first string            // id of the key that encrypts
	byID  map[string][]byte // 32 bytes each
	mac   []byte            // see Digest
}

// Parse reads keys: one "ID:KEY" a line, or separated by commas. ID is 1 to 32 letters, digits, '.',
// '_' or '-', and KEY is 32 bytes in base64. Empty lines and lines that begin with # are ignored, as is
// what begins with # behind a comma. Parse returns nil if there is no key. Errors do not quote keys.
func Parse(text string) (*Keys, error) {
	k := &Keys{byID: map[string][]byte{}}
	var parts []string
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") { // a comment may have commas
			parts = append(parts, strings.Split(line, ",")...)
		}
	}
	n := 0
	for _, part := range parts {
		part = strings.TrimSpace(part)
		if part == "" || part[0] == '#' {
			continue
		}
		n++
		id, encoded, named := strings.Cut(part, ":")
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
		switch {
		case !named || !idPattern.MatchString(id): // a line without an id may be a key
			return nil, fmt.Errorf("key %d: write ID:KEY, with an ID of 1 to 32 letters, digits, '.', '_' or '-'", n)
		case err != nil || len(key) != 32:
			return nil, fmt.Errorf("key %d, %s: the part after ':' is not 32 bytes in base64, such as `openssl rand -base64 32` prints", n, id)
		case k.byID[id] != nil:
			return nil, fmt.Errorf("key %d: the ID %s is taken", n, id)
		}
		if k.first == "" {
			k.first = id
		}
		k.byID[id] = key
	}
	if k.first == "" {
		return nil, nil
	}
	// While a key is replaced, programs have the two in different orders.
	lowest := slices.Min(slices.Collect(maps.Keys(k.byID)))
	mac, err := hkdf.Expand(sha256.New, k.byID[lowest], "headgate digest", 32)
	if err != nil {
		return nil, err
	}
	k.mac = mac
	return k, nil
}

// Field names what is encrypted.
type Field string

// The fields. A periodic job has no queue.
const (
	Payload      Field = "payload"
	Result       Field = "result"
	FollowUps    Field = "follow-ups"
	ParentResult Field = "result of the job that it follows"
	Periodic     Field = "periodic job"
)

// Place is where a text is stored.
type Place struct {
	queue, id string
	field     Field
}

// PlaceOf returns the place of a field of a job. queue may be a partition: the place is that of its queue, because
// jobs move between the partitions of a queue.
func PlaceOf(queue, id string, field Field) Place { return Place{partition.QueueOf(queue), id, field} }

// Encrypt returns a text for a place. Without keys, or for an empty text, it is the text itself.
func (k *Keys) Encrypt(text []byte, in Place) []byte {
	if k == nil || len(text) == 0 {
		return text
	}
	aead, err := aeadOf(k.byID[k.first], in)
	if err != nil {
		panic(err) // keys have 32 bytes
	}
	return aead.Seal([]byte(mark+k.first+"\x00"), nil, text, nil)
}

// Decrypt returns the text that was encrypted for a place, or the text itself if it is not
// encrypted. The error is a [MissingKeyError], or says that the text does not belong there.
func (k *Keys) Decrypt(text []byte, in Place) ([]byte, error) {
	if !Encrypted(text) {
		return text, nil
	}
	id, sealed, _ := bytes.Cut(text[len(mark):], []byte{0})
	var key []byte
	if k != nil {
		key = k.byID[string(id)]
	}
	if key == nil {
		return nil, &MissingKeyError{ID: fmt.Sprintf("%.32q", id)}
	}
	aead, err := aeadOf(key, in)
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, nil, sealed, nil)
	if err != nil {
		return nil, fmt.Errorf("the %s cannot be decrypted with key %q: it was changed, or the key is another one", in.field, id)
	}
	return plain, nil
}

// Current reports whether a text is encrypted with the key with which [Keys.Encrypt] would do it.
func (k *Keys) Current(text []byte) bool { return bytes.HasPrefix(text, []byte(mark+k.first+"\x00")) }

// Encrypted reports whether a text begins like one that [Keys.Encrypt] returned. Other texts must
// not begin like that.
func Encrypted(text []byte) bool { return bytes.HasPrefix(text, []byte(mark)) }

// ErrMarked reports a text that begins like an encrypted one.
var ErrMarked = errors.New("must not begin like an encrypted text")

// MissingKeyError reports a text whose key a program does not have.
type MissingKeyError struct{ ID string } // quoted

func (e *MissingKeyError) Error() string {
	return fmt.Sprintf("encrypted with key %s, which this program does not have: add it to HEADGATE_PAYLOAD_KEYS", e.ID)
}

// Digest returns a digest of a text by which equal texts can be recognized. With keys, it is made
// with the one whose id sorts first, and only programs that have it can tell whether it belongs to a text.
func (k *Keys) Digest(text []byte) []byte {
	if k == nil {
		sum := sha256.Sum256(text)
		return sum[:]
	}
	sum := hmac.New(sha256.New, k.mac)
	sum.Write(text)
	return sum.Sum(nil)
}

func aeadOf(key []byte, in Place) (cipher.AEAD, error) {
	own, err := hkdf.Expand(sha256.New, key, fmt.Sprintf("headgate text %q %q %q", in.queue, in.id, in.field), 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(own)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
