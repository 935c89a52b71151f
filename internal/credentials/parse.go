package credentials

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/filewatch"
	"github.com/headgate/headgate/internal/strictyaml"
)

// fields are those of each kind. Only webhooks have a list: the newest first, and
// during a rotation the one before it.
var fields = map[string][]string{
	"webhook": {secretList},
	"ai":      {"api_key"},
	"payment": {"key"},
	"email":   {"username", "password", "access_key_id", "secret_access_key", "session_token", "api_key"},
}

const (
	secretList = "secrets"
	maxSecrets = 2

	maxBytes    = 10 << 20 // of the file: some 50,000 tenants
	maxValue    = 8 << 10
	maxMistakes = 10 // in one error
)

// Secrets are what the calls of one tenant and kind are made with.
type Secrets struct {
	// ID is the same for the same values, and tells nothing of them.
	ID string

	values map[string][]string
}

// Get is the value of a field, or "".
func (s *Secrets) Get(field string) string {
	if list := s.values[field]; len(list) > 0 {
		return list[0]
	}
	return ""
}

// List is all values of a field.
func (s *Secrets) List(field string) []string { return s.values[field] }

// Fields are those that have a value, sorted.
func (s *Secrets) Fields() []string { return slices.Sorted(maps.Keys(s.values)) }

func newSecrets(values map[string][]string) *Secrets {
	s := &Secrets{values: values}
	hash := sha256.New()
	for _, name := range s.Fields() {
		fmt.Fprintf(hash, "%q%q", name, values[name])
	}
	s.ID = hex.EncodeToString(hash.Sum(nil))
	return s
}

// entry is a kind of a tenant: secrets, or why there are none.
type entry struct {
	secrets *Secrets
	held    string
}

// version is what a file said at a moment, with the files that it named.
type version struct {
	tenants map[string]map[string]entry
	stamps  filewatch.Version
}

// read reads the file and what it names. The stamps are taken before, so that a change
// while reading counts as one that comes after it. They are set also with an error.
func read(path string, check Check) (version, error) {
	v := version{stamps: filewatch.Version{}, tenants: map[string]map[string]entry{}}
	text, err := v.load(path, maxBytes)
	if err != nil {
		return v, fmt.Errorf("credentials file: %w", err)
	}
	err = strictyaml.ParseSecret(text, maxBytes, "tenants", func(p *strictyaml.Parser, root *yaml.Node) {
		(&parser{p, &v, check}).file(root)
	})
	if mistakes, ok := errors.AsType[*strictyaml.Error](err); ok {
		var lines []string
		for _, mistake := range mistakes.Problems {
			lines = append(lines, mistake.String())
		}
		if more := len(lines) - maxMistakes; more > 0 {
			lines = append(lines[:maxMistakes], fmt.Sprintf("and %d more", more))
		}
		return v, fmt.Errorf("credentials file %s: %s", path, strings.Join(lines, "; "))
	}
	return v, err
}

func (v *version) load(path string, most int64) (text []byte, err error) {
	v.stamps.Add(path)
	defer func() { v.stamps.Failed(err) }()
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err = io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s: must be at most %d bytes", path, most)
	}
	return text, err
}

// parser reads the nodes of a file into a version.
type parser struct {
	*strictyaml.Parser
	version *version
	check   Check
}

func (p *parser) file(root *yaml.Node) {
	p.Fields(root, "", map[string]strictyaml.Read{"tenants": p.tenants})
	if len(root.Content) == 0 && len(p.Problems) == 0 {
		p.Wrong(root, "tenants", "required")
	}
}

func (p *parser) tenants(node *yaml.Node, path string) {
	p.notEmpty(node, path)
	p.Entries(node, path, func(tenant, kinds *yaml.Node, at string) {
		if reason := check.Text(tenant.Value, check.MaxTenant); reason != "" {
			p.Wrong(tenant, path, "name of a tenant: %s", reason)
			return
		}
		p.notEmpty(kinds, at)
		entries := map[string]entry{}
		readers := map[string]strictyaml.Read{}
		for kind := range fields {
			readers[kind] = func(node *yaml.Node, path string) { entries[kind] = p.entry(node, path, kind) }
		}
		p.Fields(kinds, at, readers)
		p.version.tenants[tenant.Value] = entries
	})
}

// notEmpty rejects a name without a value, which is rather a mistake than a wish to call
// with the credentials of the worker.
func (p *parser) notEmpty(node *yaml.Node, path string) {
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		p.Wrong(node, path, "must not be empty")
	}
}

// entry reads what a tenant has for a kind.
func (p *parser) entry(node *yaml.Node, path, kind string) entry {
	if node.Kind == yaml.ScalarNode && node.Value == "none" {
		return entry{held: "it has none in the credentials file"}
	}
	values, held := map[string][]string{}, ""
	add := func(name string, node *yaml.Node, path string) {
		value, missing := p.value(node, path)
		if missing != "" && held == "" {
			held = name + ": " + missing
		}
		values[name] = append(values[name], value)
	}
	before := len(p.Problems)
	readers := map[string]strictyaml.Read{}
	for _, name := range fields[kind] {
		readers[name] = func(node *yaml.Node, path string) { add(name, node, path) }
	}
	if kind == "webhook" {
		readers[secretList] = func(node *yaml.Node, path string) {
			p.Items(node, path, func(item *yaml.Node, at string) { add(secretList, item, at) })
			if n := len(values[secretList]); len(p.Problems) == before && (n < 1 || n > maxSecrets) {
				p.Wrong(node, path, "must be a list of 1 to %d, the newest first", maxSecrets)
			}
		}
	}
	p.Fields(node, path, readers)
	switch {
	case len(p.Problems) > before:
		return entry{}
	case held != "":
		return entry{held: held}
	case len(values) == 0:
		p.Wrong(node, path, "empty; the fields are %s; or write none in place of all", strings.Join(fields[kind], ", "))
		return entry{}
	}
	secrets := newSecrets(values)
	if err := p.check(kind, secrets); err != nil {
		p.Wrong(node, path, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return entry{secrets: secrets}
}

// value reads a text, {file: PATH} or {env: NAME}. A file or variable may be missing for a
// while, which holds the jobs of this tenant alone.
func (p *parser) value(node *yaml.Node, path string) (value, missing string) {
	if node.Kind == yaml.ScalarNode {
		value = node.Value
		if value == "" || node.Tag == "!!null" {
			p.Wrong(node, path, "must not be empty")
		}
		return p.fit(node, path, value), ""
	}
	given, before := 0, len(p.Problems)
	word := func(use func(node *yaml.Node, path, name string)) strictyaml.Read {
		return func(node *yaml.Node, path string) {
			given++
			if p.Word(node, path) {
				use(node, path, node.Value)
			}
		}
	}
	p.Fields(node, path, map[string]strictyaml.Read{
		"env": word(func(_ *yaml.Node, _, name string) {
			if value = os.Getenv(name); value == "" {
				missing = "the environment variable that it names is empty or not set"
			}
		}),
		"file": word(func(node *yaml.Node, at, name string) {
			if !filepath.IsAbs(name) { // it may be the secret itself
				p.Wrong(node, at, "must be an absolute path, such as /run/secrets/name")
				return
			}
			text, err := p.version.load(name, maxValue)
			value = strings.TrimSpace(string(text))
			switch {
			case err != nil:
				missing = err.Error()
			case value == "":
				missing = name + " is empty"
			}
		}),
	})
	if given != 1 && len(p.Problems) == before {
		p.Wrong(node, path, "must have one of env and file")
	}
	if missing != "" {
		return "", missing
	}
	return p.fit(node, path, value), ""
}

func (p *parser) fit(node *yaml.Node, path, value string) string {
	if len(value) > maxValue {
		p.Wrong(node, path, "%d bytes; at most %d are allowed", len(value), maxValue)
	}
	if strings.ContainsFunc(value, unicode.IsControl) || !utf8.ValidString(value) {
		p.Wrong(node, path, "must not have line breaks or other control characters")
	}
	return value
}
