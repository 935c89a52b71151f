package api

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

// Scope is what a key may be used for.
type Scope string

// The scopes. Admin has the other two in it.
const (
	Read    Scope = "read"    // see queues, tenants, jobs with their payloads, limits and the audit
	Enqueue Scope = "enqueue" // enqueue jobs and estimate batches; not read them back
	Admin   Scope = "admin"   // change jobs, pauses and limits
)

var scopes = []string{string(Read), string(Enqueue), string(Admin)}

// Hash is the SHA-256 of a key, which is all that is kept of it: a key has 256
// random bits, so nothing slower is needed to keep it from being guessed.
type Hash [sha256.Size]byte

const hashPrefix = "sha256:"

// String is the hash as a keys file has it.
func (h Hash) String() string { return hashPrefix + hex.EncodeToString(h[:]) }

// ParseHash reads what [Hash.String] wrote.
func ParseHash(text string) (Hash, error) {
	digits, ok := strings.CutPrefix(text, hashPrefix)
	bytes, err := hex.DecodeString(digits)
	if !ok || err != nil || len(bytes) != sha256.Size {
		return Hash{}, errors.New("it is not sha256: and 64 hexadecimal digits; enqueue keys new makes it")
	}
	return Hash(bytes), nil
}

const (
	keyPrefix = "hg_" // so that tools that look for leaked secrets find it
	keyBytes  = 32
)

// NewKey makes a key and its hash. Nobody can tell the key again.
func NewKey() (key string, hash Hash) {
	bits := make([]byte, keyBytes)
	_, _ = rand.Read(bits) // it never fails
	key = keyPrefix + base64.RawURLEncoding.EncodeToString(bits)
	return key, sha256.Sum256([]byte(key))
}

// Key is who may do what.
type Key struct {
	ID      string        // whom the audit names: 1 to 64 letters, digits, '.', '_' or '-'
	Hash    Hash          // of the key itself
	Scopes  []Scope       // at least one
	Tenants []string      // whom it is for; none: for all, and for whole queues
	Rate    throttle.Rate // requests that it may make; zero: [RequestLimits].PerKey
	Expires time.Time     // when it ends; zero: never
}

var keyID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// Validate reports what is wrong with a key, each as a [invalid.InvalidError].
func (k Key) Validate() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, validation.Field(field, fmt.Sprintf(format, args...)))
	}
	if !keyID.MatchString(k.ID) {
		wrong("id", "%.70q is not 1 to 64 letters, digits, '.', '_' or '-'", k.ID)
	}
	if k.ID == localActor || k.ID == nobody {
		wrong("id", "%q is taken", k.ID)
	}
	if k.Hash == (Hash{}) {
		wrong("hash", "it is missing")
	}
	if len(k.Scopes) == 0 {
		wrong("scopes", "there is none: name at least one of %s", strings.Join(scopes, ", "))
	}
	for _, scope := range k.Scopes {
		if !slices.Contains(scopes, string(scope)) {
			wrong("scopes", "%.40q is none of %s%s", scope, strings.Join(scopes, ", "), check.Suggest(string(scope), scopes))
		}
	}
	for _, tenant := range k.Tenants {
		if reason := tenantProblem(tenant); reason != "" {
			wrong("tenants", "%s", reason)
		}
	}
	if k.Rate != (throttle.Rate{}) {
		if err := perKey(k.Rate).Validate(); err != nil {
			wrong("rate", "%v", err)
		}
	}
	return errors.Join(errs...)
}

// tenantProblem returns what is wrong with the name of a tenant; "" if nothing is.
func tenantProblem(tenant string) string {
	if reason := check.Text(tenant, check.MaxTenant); reason != "" {
		return fmt.Sprintf("%.140q: %s", tenant, reason)
	}
	return ""
}

func (k Key) may(scope Scope) bool {
	return slices.Contains(k.Scopes, scope) || slices.Contains(k.Scopes, Admin)
}

// Keys are the keys in force. The zero one lets nobody in.
type Keys struct{ byHead map[[8]byte][]Key }

// NewKeys takes keys that are valid.
func NewKeys(keys []Key) *Keys {
	k := &Keys{byHead: make(map[[8]byte][]Key, len(keys))}
	for _, key := range keys {
		head := [8]byte(key.Hash[:8])
		k.byHead[head] = append(k.byHead[head], key)
	}
	return k
}

// find is the key of a token. Its hash is found by its first bytes, which tell an
// attacker nothing who cannot choose hashes, and compared in constant time.
func (k *Keys) find(token string) (Key, bool) {
	hash := sha256.Sum256([]byte(token))
	for _, key := range k.byHead[[8]byte(hash[:8])] {
		if subtle.ConstantTimeCompare(key.Hash[:], hash[:]) == 1 {
			return key, true
		}
	}
	return Key{}, false
}
