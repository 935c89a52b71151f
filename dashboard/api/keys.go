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

// Scope is a permission of a key.
type Scope string

// The scopes. Admin includes the others.
const (
	Read    Scope = "read"    // see queues, tenants, jobs with their payloads, limits and the audit log
	Enqueue Scope = "enqueue" // enqueue jobs and estimate batches, but not read jobs
	Operate Scope = "operate" // cancel, retry and delete jobs, pause and resume tenants, and lower limits
	Admin   Scope = "admin"   // also what affects other tenants: run jobs beyond limits, raise limits, pause queues and kinds
)

var scopes = []string{string(Read), string(Enqueue), string(Operate), string(Admin)}

// Hash is the SHA-256 of a key; the key itself is not stored. A key has 256 random bits, so
// it cannot be guessed even with a fast hash.
type Hash [sha256.Size]byte

const hashPrefix = "sha256:"

// String returns the hash in the form of a keys file.
func (h Hash) String() string { return hashPrefix + hex.EncodeToString(h[:]) }

// ParseHash parses the output of [Hash.String].
func ParseHash(text string) (Hash, error) {
	digits, ok := strings.CutPrefix(text, hashPrefix)
	bytes, err := hex.DecodeString(digits)
	if !ok || err != nil || len(bytes) != sha256.Size {
		return Hash{}, errors.New("is not sha256: and 64 hexadecimal digits: create a key and its hash with enqueue keys new")
	}
	return Hash(bytes), nil
}

const (
	keyPrefix = "hg_" // lets scanners find leaked keys
	keyBytes  = 32
)

// NewKey creates a key and its hash. The key cannot be recovered from the hash.
func NewKey() (key string, hash Hash) {
	bits := make([]byte, keyBytes)
	_, _ = rand.Read(bits) // it never fails
	key = keyPrefix + base64.RawURLEncoding.EncodeToString(bits)
	return key, sha256.Sum256([]byte(key))
}

// Key is an API key: who may do what.
type Key struct {
	ID            string        // the actor in the audit log: 1 to 64 letters, digits, '.', '_' or '-'
	Hash          Hash          // of the secret key
	Scopes        []Scope       // at least one
	Tenants       []string      // the tenants it is for; empty: all, and whole queues
	Queues        []string      // the queues it is for; empty: all
	Kinds         []string      // the kinds whose jobs it may enqueue, see and change; empty: all
	From          []string      // the domains that mail may be sent from; empty: any
	SharedAccount bool          // whether jobs of a key with tenants may use the worker's account of a provider
	MaxRetention  time.Duration // the longest retention of a job; zero: that of its queue
	Rate          throttle.Rate // max rate of its requests; zero: [RequestLimits].PerKey
	Expires       time.Time     // when it ends; zero: never
}

// String returns what a key may do, without its secret. Another secret has another first part of
// its hash.
func (k Key) String() string {
	text := fmt.Sprint(k.Scopes)
	text = strings.Trim(text, "[]") + fmt.Sprintf(" (hash %x…)", k.Hash[:4])
	for _, some := range []struct {
		name string
		list []string
	}{{"tenants", k.Tenants}, {"queues", k.Queues}, {"kinds", k.Kinds}, {"from", k.From}} {
		if len(some.list) > 0 {
			text += fmt.Sprintf(", %s %q", some.name, some.list)
		}
	}
	if k.SharedAccount {
		text += ", shared account"
	}
	if k.MaxRetention != 0 {
		text += ", retention " + k.MaxRetention.String()
	}
	if k.Rate != (throttle.Rate{}) {
		text += ", " + k.Rate.String()
	}
	if !k.Expires.IsZero() {
		text += ", until " + k.Expires.UTC().Format(time.RFC3339)
	}
	return text
}

const minRetention = 24 * time.Hour

var domainName = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9-]{2,63}$`)

var keyID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// Validate reports all invalid fields of a key, joined, each as a [validation.Error].
func (k Key) Validate() error {
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, validation.Field(field, fmt.Sprintf(format, args...)))
	}
	if !keyID.MatchString(k.ID) {
		wrong("id", "%.70q is not 1 to 64 letters, digits, '.', '_' or '-'", k.ID)
	}
	if k.ID == localActor || k.ID == nobody {
		wrong("id", "%q is reserved: choose another id", k.ID)
	}
	if k.Hash == (Hash{}) {
		wrong("hash", "is required")
	}
	if len(k.Scopes) == 0 {
		wrong("scopes", "is required: name at least one of %s", strings.Join(scopes, ", "))
	}
	for _, scope := range k.Scopes {
		if !slices.Contains(scopes, string(scope)) {
			wrong("scopes", "%.40q is not a scope: use %s%s", scope, strings.Join(scopes, ", "), check.Suggest(string(scope), scopes))
		}
	}
	for _, tenant := range k.Tenants {
		if reason := tenantProblem(tenant); reason != "" {
			wrong("tenants", "%s", reason)
		}
	}
	if slices.Contains(k.Scopes, Admin) && len(k.Tenants)+len(k.Kinds) > 0 {
		wrong("scopes", "admin affects all tenants and kinds: a key for some of them can have operate")
	}
	for _, name := range k.Queues {
		if !check.QueuePattern.MatchString(name) {
			wrong("queues", "%.70q is not the name of a queue", name)
		}
	}
	for _, name := range k.Kinds {
		if !check.KindPattern.MatchString(name) {
			wrong("kinds", "%.70q is not the name of a kind", name)
		}
	}
	for _, domain := range k.From {
		if !domainName.MatchString(domain) {
			wrong("from", "%.140q is not a domain in lower case such as mail.example.com", domain)
		}
	}
	if k.SharedAccount && len(k.Tenants) == 0 {
		wrong("shared_account", "a key for all tenants has it: leave it out, or name tenants")
	}
	if k.MaxRetention != 0 && k.MaxRetention < minRetention {
		wrong("max_retention", "%v is less than 24h, for which jobs with keys and follow-ups are kept", k.MaxRetention)
	}
	if k.Rate != (throttle.Rate{}) {
		if err := perKey(k.Rate).Validate(); err != nil {
			wrong("rate", "%v", err)
		}
	}
	return errors.Join(errs...)
}

// tenantProblem returns why a tenant's name is invalid, or "".
func tenantProblem(tenant string) string {
	if reason := check.Text(tenant, check.MaxTenant); reason != "" {
		return fmt.Sprintf("%.140q: %s", tenant, reason)
	}
	return ""
}

func (k Key) may(scope Scope) bool {
	return slices.Contains(k.Scopes, scope) || slices.Contains(k.Scopes, Admin)
}

// Keys is a set of keys in force. The zero value accepts no key.
type Keys struct{ byHead map[[8]byte][]Key }

// NewKeys returns a set of keys, which must be valid.
func NewKeys(keys []Key) *Keys {
	k := &Keys{byHead: make(map[[8]byte][]Key, len(keys))}
	for _, key := range keys {
		head := [8]byte(key.Hash[:8])
		k.byHead[head] = append(k.byHead[head], key)
	}
	return k
}

// find returns the key of a token. The hash is looked up by its first bytes, which reveals
// nothing to attackers because they cannot choose hashes, and compared in constant time.
func (k *Keys) find(token string) (Key, bool) {
	hash := sha256.Sum256([]byte(token))
	for _, key := range k.byHead[[8]byte(hash[:8])] {
		if subtle.ConstantTimeCompare(key.Hash[:], hash[:]) == 1 {
			return key, true
		}
	}
	return Key{}, false
}
