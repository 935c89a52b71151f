package credentials

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/filewatch"
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

	maxBytes = 10 << 20 // of the file: some 50,000 tenants
	maxValue = 8 << 10
	maxTold  = 10 // mistakes in one error
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
func (s *Secrets) Fields() []string {
	var names []string
	for name := range s.values {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

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

// read reads the file and what it names. The stamps are those of before, so that
// a change while reading is one that comes after it; they are there also with an
// error.
func read(path string, check Check) (version, error) {
	v := version{stamps: filewatch.Version{}}
	text, err := v.load(path, maxBytes)
	if err != nil {
		return v, fmt.Errorf("credentials file: %w", err)
	}
	p := &parser{version: &v, check: check}
	if err := p.file(text); err != nil {
		return v, fmt.Errorf("credentials file %s: %w", path, err)
	}
	return v, nil
}

func (v *version) load(path string, most int64) ([]byte, error) {
	v.stamps.Add(path)
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	return text, err
}

// parser walks over the file by itself: the errors of a YAML library repeat what
// stands there.
type parser struct {
	version *version
	check   Check
	wrong   []string
}

func (p *parser) mistake(node *yaml.Node, path, format string, args ...any) {
	p.wrong = append(p.wrong, fmt.Sprintf("line %d: %s: %s", node.Line, path, fmt.Sprintf(format, args...)))
}

var yamlLine = regexp.MustCompile(`line (\d+)`)

func (p *parser) file(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("it is not UTF-8 text")
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return errors.New("it is empty: it needs tenants")
	} else if err != nil {
		return notYAML(err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("it holds more than one document")
	}
	root := document.Content[0]
	p.version.tenants = map[string]map[string]entry{}
	p.each(root, "the file", []string{"tenants"}, func(_ string, tenants *yaml.Node) {
		p.each(tenants, "tenants", nil, func(tenant string, kinds *yaml.Node) {
			of := map[string]entry{}
			p.each(kinds, "tenants."+tenant, sorted(fields), func(kind string, node *yaml.Node) {
				of[kind] = p.entry(node, "tenants."+tenant+"."+kind, kind)
			})
			p.version.tenants[tenant] = of
		})
	})
	if len(p.wrong) > maxTold {
		p.wrong = append(p.wrong[:maxTold], fmt.Sprintf("and %d more", len(p.wrong)-maxTold))
	}
	if len(p.wrong) > 0 {
		return errors.New(strings.Join(p.wrong, "; "))
	}
	return nil
}

func notYAML(err error) error {
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("line %s: it is not YAML", m[1])
	}
	return errors.New("it is not YAML")
}

func sorted(of map[string][]string) []string {
	var names []string
	for name := range of {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// each goes over a mapping. Of names it does not repeat any that is not known: it
// could be a value.
func (p *parser) each(node *yaml.Node, path string, known []string, do func(name string, value *yaml.Node)) {
	if node.Kind != yaml.MappingNode {
		p.mistake(node, path, "want a mapping, such as {name: value}")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		switch {
		case name.Kind != yaml.ScalarNode || name.Value == "" || strings.ContainsFunc(name.Value, unicode.IsControl):
			p.mistake(name, path, "there is a name that is none")
		case known != nil && !slices.Contains(known, name.Value):
			p.mistake(name, path, "unknown name; there can be %s", strings.Join(known, ", "))
		case seen[name.Value]:
			p.mistake(name, path, "%s stands twice", name.Value)
		default:
			do(name.Value, value)
		}
		seen[name.Value] = true
	}
}

// entry reads what a tenant has for a kind.
func (p *parser) entry(node *yaml.Node, path, kind string) entry {
	if node.Kind == yaml.ScalarNode && node.Value == "none" {
		return entry{held: "it is none in the credentials file"}
	}
	values, held := map[string][]string{}, ""
	add := func(name string, node *yaml.Node, path string) {
		value, missing := p.value(node, path)
		if missing != "" && held == "" {
			held = name + ": " + missing
		}
		values[name] = append(values[name], value)
	}
	before := len(p.wrong)
	p.each(node, path, fields[kind], func(name string, node *yaml.Node) {
		path := path + "." + name
		if name != secretList {
			add(name, node, path)
			return
		}
		if node.Kind != yaml.SequenceNode || len(node.Content) < 1 || len(node.Content) > maxSecrets {
			p.mistake(node, path, "want a list of 1 to %d, the newest first", maxSecrets)
			return
		}
		for i, node := range node.Content {
			add(name, node, fmt.Sprintf("%s[%d]", path, i))
		}
	})
	if len(p.wrong) > before {
		return entry{}
	}
	if held != "" {
		return entry{held: held}
	}
	if len(values) == 0 {
		p.mistake(node, path, "it is empty; there can be %s, or none in place of all", strings.Join(fields[kind], ", "))
		return entry{}
	}
	secrets := newSecrets(values)
	if err := p.check(kind, secrets); err != nil {
		p.mistake(node, path, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return entry{secrets: secrets}
}

// value is a text, or {file: PATH}, or {env: NAME}. What these name may be missing
// for a while, and then holds the one tenant.
func (p *parser) value(node *yaml.Node, path string) (value, missing string) {
	if node.Kind == yaml.ScalarNode {
		value = node.Value
		if value == "" || node.Tag == "!!null" {
			p.mistake(node, path, "it is empty")
		}
		return p.fit(node, path, value), ""
	}
	given, before := 0, len(p.wrong)
	p.each(node, path, []string{"env", "file"}, func(by string, name *yaml.Node) {
		given++
		if name.Kind != yaml.ScalarNode || name.Value == "" {
			p.mistake(name, path+"."+by, "want a text")
			return
		}
		if by == "env" {
			if value = os.Getenv(name.Value); value == "" {
				missing = "the environment lacks the variable that it names"
			}
			return
		}
		if !filepath.IsAbs(name.Value) { // it may be the secret itself
			p.mistake(name, path+"."+by, "want a path from the root, such as /run/secrets/name")
			return
		}
		text, err := p.version.load(name.Value, maxValue)
		value = strings.TrimSpace(string(text))
		switch {
		case err != nil:
			missing = err.Error()
		case value == "":
			missing = name.Value + " is empty"
		}
	})
	if given != 1 && len(p.wrong) == before {
		p.mistake(node, path, "want one of env and file")
	}
	if missing != "" {
		return "", missing
	}
	return p.fit(node, path, value), ""
}

func (p *parser) fit(node *yaml.Node, path, value string) string {
	if len(value) > maxValue {
		p.mistake(node, path, "%d bytes are more than %d", len(value), maxValue)
	}
	if strings.ContainsFunc(value, unicode.IsControl) || !utf8.ValidString(value) {
		p.mistake(node, path, "it has line breaks, or characters that no secret has")
	}
	return value
}
