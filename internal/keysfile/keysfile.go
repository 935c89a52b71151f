// Package keysfile reads the file of API keys.
//
//	keys:
//	  - id: shop
//	    hash: "sha256:…"            # printed by enqueue keys new
//	    scopes: [enqueue, read]     # or operate, or admin, which includes the others
//	    tenants: [acme]             # if missing: all
//	    queues: [mail]              # if missing: all
//	    kinds: [email]              # if missing: all
//	    from: [mail.example.com]    # domains that mail is sent from; if missing: any
//	    rate: 100/s                 # if missing: the default for all keys
//	    expires: 2027-01-31T00:00:00Z
package keysfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"sync/atomic"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/internal/filewatch"
	"github.com/headgate/headgate/internal/strictyaml"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

// maxBytes is the maximum size of a file, about 5,000 keys.
const maxBytes = 1 << 20

// Parse returns the keys in the text of a file. Its error is a [strictyaml.Error] with every
// mistake.
func Parse(text []byte) ([]api.Key, error) {
	var keys []api.Key
	err := strictyaml.Parse(text, maxBytes, "keys", func(p *strictyaml.Parser, root *yaml.Node) {
		r := &reader{Parser: p, ids: map[string]bool{}, hashes: map[api.Hash]string{}}
		p.Fields(root, "", map[string]strictyaml.Read{
			"keys": func(node *yaml.Node, path string) {
				p.Items(node, path, func(item *yaml.Node, at string) { keys = append(keys, r.key(item, at)) })
			},
		})
		if len(keys) == 0 && len(p.Problems) == 0 {
			p.Wrong(root, "keys", "required: without a key nobody has access")
		}
	})
	return keys, err
}

type reader struct {
	*strictyaml.Parser
	ids    map[string]bool
	hashes map[api.Hash]string
}

func (r *reader) key(node *yaml.Node, path string) api.Key {
	var key api.Key
	var id, hash, expires string
	var scopes []string
	var rate *throttle.Rate
	before := len(r.Problems)
	r.Fields(node, path, map[string]strictyaml.Read{
		"id": r.Text(&id), "hash": r.Text(&hash), "scopes": r.Texts(&scopes), "tenants": r.Texts(&key.Tenants),
		"queues": r.Texts(&key.Queues), "kinds": r.Texts(&key.Kinds), "from": r.Texts(&key.From),
		"shared_account": r.Yes(&key.SharedAccount), "max_retention": r.Duration(&key.MaxRetention),
		"rate": r.Rate(&rate), "expires": r.Text(&expires),
	})
	if len(r.Problems) > before {
		return key // check the meaning only if the syntax is right
	}
	line := func(field string) int { return r.Lines[path+"."+field] } // 0: it is not there
	wrong := func(field, reason string) {
		r.Problems = append(r.Problems, strictyaml.Problem{Line: cmp.Or(line(field), node.Line), Path: path + "." + field, Reason: reason})
	}
	key.ID = id
	for _, scope := range scopes {
		key.Scopes = append(key.Scopes, api.Scope(scope))
	}
	if rate != nil {
		key.Rate = *rate
	}
	var err error
	if key.Hash, err = api.ParseHash(hash); hash != "" && err != nil {
		wrong("hash", err.Error())
		key.Hash[0] = 1 // so that Validate does not report it again
	}
	for field, list := range map[string][]string{"tenants": key.Tenants, "queues": key.Queues, "kinds": key.Kinds, "from": key.From} {
		if line(field) > 0 && len(list) == 0 {
			wrong(field, "it is empty, and would be taken for all: leave it out, or name them")
		}
	}
	if expires != "" {
		if key.Expires, err = time.Parse(time.RFC3339, expires); err != nil {
			wrong("expires", fmt.Sprintf("%.40q is not a time such as 2027-01-31T09:00:00Z", expires))
		}
	}
	for _, err := range validation.Unjoin(key.Validate()) {
		if invalid, ok := errors.AsType[*validation.Error](err); ok {
			wrong(invalid.Field, invalid.Reason)
		}
	}
	if r.ids[key.ID] {
		wrong("id", fmt.Sprintf("another key is %q, too", key.ID))
	}
	if other, taken := r.hashes[key.Hash]; taken && len(r.Problems) == before {
		wrong("hash", fmt.Sprintf("it is that of key %q: one key would have two names", other))
	}
	r.ids[key.ID], r.hashes[key.Hash] = true, key.ID
	return key
}

// Store holds the keys of a file. [Store.Run] reloads the file when it changes.
type Store struct {
	path   string
	logger *slog.Logger
	keys   atomic.Pointer[api.Keys]
	told   map[string]string // what the keys of the file may do, by id
	seen   filewatch.Version // last loaded or rejected
	every  time.Duration     // between looks at the file
}

// Open reads the file. The error names every mistake in it.
func Open(path string, logger *slog.Logger) (*Store, error) {
	s := &Store{path: path, logger: logger, every: time.Second}
	if err := s.read(); err != nil {
		return nil, fmt.Errorf("keys file %w", err)
	}
	return s, nil
}

// Keys returns the keys in effect.
func (s *Store) Keys() *api.Keys { return s.keys.Load() }

func (s *Store) set(keys []api.Key) {
	s.keys.Store(api.NewKeys(keys))
	s.told = map[string]string{}
	for _, key := range keys {
		s.told[key.ID] = key.String()
	}
}

func (s *Store) read() error {
	s.seen = filewatch.Look(s.path)
	f, err := os.Open(s.path)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return err
	}
	keys, err := Parse(text)
	if err != nil && empty(text) {
		return fmt.Errorf("%s: %w", s.path, errNoKeys)
	}
	if err != nil {
		return fmt.Errorf("%s:\n%w", s.path, err)
	}
	s.set(keys)
	s.logger.Info("the keys file is in force", "file", s.path, "keys", len(keys))
	return nil
}

var errNoKeys = errors.New("there is no key in it, so nobody would have access: add one with enqueue keys new")

// empty reports whether all keys were taken out of a file, and not misspelled.
func empty(text []byte) bool {
	var fields map[string]yaml.Node
	if yaml.Unmarshal(text, &fields) != nil {
		return false
	}
	keys, there := fields["keys"]
	return len(fields) == 0 || there && len(fields) == 1 && len(keys.Content) == 0 && (keys.Kind == yaml.SequenceNode || keys.Tag == "!!null")
}

// Run reloads the file when it changes, until ctx is done. A file with mistakes, or that cannot be opened, changes nothing.
// Without the file, or without a key in it, nobody has access. After a change, Run calls changed
// with what the keys that differ could do, and what they can do, by their ids. The error is
// always nil.
func (s *Store) Run(ctx context.Context, changed func(ctx context.Context, before, after map[string]string)) error {
	gone := func(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoKeys) }
	filewatch.Run(ctx, s.every, s.seen, func() (filewatch.Version, error) {
		before := s.told
		err := s.read()
		if gone(err) {
			s.set(nil)
		}
		if was, is := differing(before, s.told), differing(s.told, before); len(was)+len(is) > 0 {
			changed(ctx, was, is)
		}
		return s.seen, err
	}, func(err error) {
		if gone(err) {
			s.logger.Error("the keys file is gone or empty: nobody has access until it has keys again", "error", err)
			return
		}
		s.logger.Error("the keys file was not taken; the keys in force stay", "error", err)
	})
	return nil
}

// differing returns the entries of all that others do not have.
func differing(all, others map[string]string) map[string]string {
	some := maps.Clone(all)
	maps.DeleteFunc(some, func(id, text string) bool { return others[id] == text })
	return some
}
