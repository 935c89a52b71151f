package strictyaml

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/throttle"
)

// Parser walks the nodes of a file, so that every mistake keeps its line.
type Parser struct {
	Problems []Problem
	Lines    map[string]int // of every path that is in the file

	secret bool // values of the file must not be quoted
}

// Wrong adds a mistake.
func (p *Parser) Wrong(node *yaml.Node, path, format string, args ...any) {
	p.Problems = append(p.Problems, Problem{Line: node.Line, Path: path, Reason: fmt.Sprintf(format, args...)})
}

// Read is how one field is read.
type Read = func(node *yaml.Node, path string)

// plain rejects anchors, aliases and tags: an alias can make a small file expand without
// bound, and a tag asks for processing that does not happen.
func (p *Parser) plain(node *yaml.Node, path string) bool {
	switch {
	case node.Kind == yaml.AliasNode || node.Anchor != "":
		p.Wrong(node, path, "anchors and aliases are not supported; write the value out")
	case node.Style&yaml.TaggedStyle != 0 && p.secret:
		p.Wrong(node, path, "tags are not supported; remove it")
	case node.Style&yaml.TaggedStyle != 0:
		p.Wrong(node, path, "tag %.40q: tags are not supported; remove it", node.Tag)
	default:
		return true
	}
	return false
}

// maxName is the maximum length of the name of a field or entry, in bytes. The path of each field has the names of all
// that it is in, so in a file of few long names and many short ones paths could take thousands of times its size.
const maxName = 256

// Entries calls each for the entries of a mapping. An empty node has none.
func (p *Parser) Entries(node *yaml.Node, path string, each func(key, value *yaml.Node, path string)) {
	p.entries(node, path, nil, each)
}

// Fields reads a mapping whose fields are known.
func (p *Parser) Fields(node *yaml.Node, path string, known map[string]Read) {
	p.entries(node, path, slices.Sorted(maps.Keys(known)), func(key, value *yaml.Node, at string) {
		known[key.Value](value, at)
	})
}

// entries reads a mapping of the known fields, or of any if these are nil.
func (p *Parser) entries(node *yaml.Node, path string, known []string, each func(key, value *yaml.Node, path string)) {
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return
	}
	if node.Kind != yaml.MappingNode {
		p.Wrong(node, path, "must be a mapping such as {name: value}, not %s", p.Describe(node))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		at := join(path, key.Value[:min(len(key.Value), maxName)])
		switch {
		case key.Kind != yaml.ScalarNode || key.Tag == "!!merge":
			p.Wrong(key, path, "the name of a field must be a word")
		case len(key.Value) > maxName:
			p.Wrong(key, path, "a name of %d bytes; the maximum is %d", len(key.Value), maxName)
		case known != nil && !slices.Contains(known, key.Value):
			if p.secret {
				p.Wrong(key, path, "unknown field; the fields are %s", strings.Join(known, ", "))
			} else {
				p.Wrong(key, at, "unknown field%s", check.Suggest(key.Value, known))
			}
			p.Problems[len(p.Problems)-1].Unknown = true
		case !p.plain(key, at) || !p.plain(value, at):
		case seen[key.Value]:
			p.Wrong(key, at, "duplicate field, first on line %d", p.Lines[at])
		default:
			seen[key.Value] = true
			p.Lines[at] = key.Line
			each(key, value, at)
		}
	}
}

// Items reads a list.
func (p *Parser) Items(node *yaml.Node, path string, each Read) {
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return
	}
	if node.Kind != yaml.SequenceNode {
		example := ""
		if node.Kind == yaml.ScalarNode && !p.secret {
			example = fmt.Sprintf(": write [%.40s]", node.Value)
		}
		p.Wrong(node, path, "must be a list, not %s%s", p.Describe(node), example)
		return
	}
	for i, item := range node.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		p.Lines[at] = item.Line
		if p.plain(item, at) {
			each(item, at)
		}
	}
}

// Text returns a reader of a word.
func (p *Parser) Text(into *string) Read {
	return func(node *yaml.Node, path string) {
		if p.Word(node, path) {
			*into = node.Value
		}
	}
}

// Word reports whether a node is a word, and adds a mistake if it is not. Numbers are
// words, because a name may consist of digits.
func (p *Parser) Word(node *yaml.Node, path string) bool {
	ok := node.Kind == yaml.ScalarNode && node.Tag != "!!null"
	if !ok {
		p.Wrong(node, path, "must be a word, not %s", p.Describe(node))
	}
	return ok
}

// Texts returns a reader of a list of words.
func (p *Parser) Texts(into *[]string) Read {
	return func(node *yaml.Node, path string) {
		p.Items(node, path, func(item *yaml.Node, at string) {
			var word string
			p.Text(&word)(item, at)
			*into = append(*into, word)
		})
	}
}

// Count returns a reader of a whole number of at least 1. An explicit zero is a mistake.
func (p *Parser) Count(into **int64) Read {
	return func(node *yaml.Node, path string) {
		var n int64
		if node.Kind != yaml.ScalarNode || node.Tag != "!!int" || node.Decode(&n) != nil {
			p.Wrong(node, path, "must be a whole number, not %s", p.Describe(node))
			return
		}
		if n < 1 {
			p.Wrong(node, path, "%d must be at least 1", n)
			return
		}
		*into = &n
	}
}

// Most returns a reader of a cap: a whole number of at least 1, or else 0.
func (p *Parser) Most(into *int64) Read {
	return func(node *yaml.Node, path string) {
		var n *int64
		if p.Count(&n)(node, path); n != nil {
			*into = *n
		}
	}
}

// sizes are the units of Size.
var sizes = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}}

// Size returns a reader of a number of bytes of at least 1, with or without a unit, such as 64MiB.
func (p *Parser) Size(into *int64) Read {
	return func(node *yaml.Node, path string) {
		if !p.Word(node, path) {
			return
		}
		digits, unit := node.Value, int64(1)
		for _, size := range sizes {
			if rest, ok := strings.CutSuffix(node.Value, size.suffix); ok {
				digits, unit = rest, size.bytes
			}
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 1 || n > math.MaxInt64/unit {
			p.Wrong(node, path, "must be a number of bytes such as 500000 or 64MiB, not %s", p.Describe(node))
			return
		}
		*into = n * unit
	}
}

// Duration returns a reader of a duration such as 24h.
func (p *Parser) Duration(into *time.Duration) Read {
	return func(node *yaml.Node, path string) {
		if !p.Word(node, path) {
			return
		}
		length, err := time.ParseDuration(node.Value)
		if days, found := strings.CutSuffix(node.Value, "d"); found {
			var n uint64
			n, err = strconv.ParseUint(days, 10, 16)
			length = time.Duration(n) * 24 * time.Hour
		}
		if err != nil || length <= 0 {
			p.Wrong(node, path, "must be a duration such as 24h or 30d, not %s", p.Describe(node))
			return
		}
		*into = length
	}
}

// Yes returns a reader of true or false.
func (p *Parser) Yes(into *bool) Read {
	return func(node *yaml.Node, path string) {
		if node.Kind != yaml.ScalarNode || node.Tag != "!!bool" || node.Decode(into) != nil {
			p.Wrong(node, path, "must be true or false, not %s", p.Describe(node))
		}
	}
}

// Rate returns a reader of a rate such as 300/s.
func (p *Parser) Rate(into **throttle.Rate) Read {
	return func(node *yaml.Node, path string) {
		if node.Kind != yaml.ScalarNode {
			p.Wrong(node, path, "must be a rate such as 300/s, not %s", p.Describe(node))
			return
		}
		rate, err := throttle.ParseRate(node.Value)
		if wrong, ok := errors.AsType[*throttle.FieldError](err); ok {
			p.Wrong(node, path, "%s", wrong.Reason)
			return
		}
		*into = &rate
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// Describe says what a node is, for the error that another kind was expected.
func (p *Parser) Describe(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "fields"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	if node.Tag == "!!null" {
		return "nothing"
	}
	if p.secret {
		return "a word"
	}
	return fmt.Sprintf("%.40q", node.Value)
}
