package strictyaml

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/throttle"
)

// Parser walks the nodes of a file, so that every mistake keeps its line.
type Parser struct {
	Problems []Problem
	Lines    map[string]int // of every path that is in the file
}

// Wrong adds a mistake.
func (p *Parser) Wrong(node *yaml.Node, path, format string, args ...any) {
	p.Problems = append(p.Problems, Problem{node.Line, path, fmt.Sprintf(format, args...)})
}

// Read is how one field is read.
type Read = func(node *yaml.Node, path string)

// plain refuses what would make a file mean more than it says: a bomb of
// aliases, or a tag that somebody's tool was to act on.
func (p *Parser) plain(node *yaml.Node, path string) bool {
	switch {
	case node.Kind == yaml.AliasNode || node.Anchor != "":
		p.Wrong(node, path, "anchors and aliases are not read; write it out")
	case node.Style&yaml.TaggedStyle != 0:
		p.Wrong(node, path, "tags such as %.40q are not read; leave it out", node.Tag)
	default:
		return true
	}
	return false
}

// Entries calls each for the entries of a mapping. Empty nodes are none.
func (p *Parser) Entries(node *yaml.Node, path string, each func(key, value *yaml.Node, path string)) {
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return
	}
	if node.Kind != yaml.MappingNode {
		p.Wrong(node, path, "want fields, not %s", Describe(node))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		at := join(path, key.Value)
		switch {
		case key.Kind != yaml.ScalarNode || key.Tag == "!!merge":
			p.Wrong(key, path, "a field's name is a word")
		case !p.plain(key, at) || !p.plain(value, at):
		case seen[key.Value]:
			p.Wrong(key, at, "it stands twice")
		default:
			seen[key.Value] = true
			p.Lines[at] = key.Line
			each(key, value, at)
		}
	}
}

// UnknownField is how the reason of an unknown field begins.
const UnknownField = "unknown field"

// Fields reads a mapping whose fields are known.
func (p *Parser) Fields(node *yaml.Node, path string, known map[string]Read) {
	p.Entries(node, path, func(key, value *yaml.Node, at string) {
		if read, ok := known[key.Value]; ok {
			read(value, at)
			return
		}
		p.Wrong(key, at, UnknownField+"%s", check.Suggest(key.Value, slices.Sorted(maps.Keys(known))))
	})
}

// Items reads a list.
func (p *Parser) Items(node *yaml.Node, path string, each Read) {
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return
	}
	if node.Kind != yaml.SequenceNode {
		p.Wrong(node, path, "want a list, not %s", Describe(node))
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

// Text reads a word.
func (p *Parser) Text(into *string) Read {
	return func(node *yaml.Node, path string) {
		if p.Word(node, path) {
			*into = node.Value
		}
	}
}

// Word reports what is no text. A number is one: names may be numbers.
func (p *Parser) Word(node *yaml.Node, path string) bool {
	ok := node.Kind == yaml.ScalarNode && node.Tag != "!!null"
	if !ok {
		p.Wrong(node, path, "want a word, not %s", Describe(node))
	}
	return ok
}

// Texts reads a list of words.
func (p *Parser) Texts(into *[]string) Read {
	return func(node *yaml.Node, path string) {
		p.Items(node, path, func(item *yaml.Node, at string) {
			var word string
			p.Text(&word)(item, at)
			*into = append(*into, word)
		})
	}
}

// Count reads a whole number of at least 1: a zero that was written is a mistake.
func (p *Parser) Count(into **int64) Read {
	return func(node *yaml.Node, path string) {
		var n int64
		if node.Kind != yaml.ScalarNode || node.Tag != "!!int" || node.Decode(&n) != nil {
			p.Wrong(node, path, "want a whole number, not %s", Describe(node))
			return
		}
		if n < 1 {
			p.Wrong(node, path, "%d is less than 1", n)
			return
		}
		*into = &n
	}
}

// Yes reads true or false.
func (p *Parser) Yes(into *bool) Read {
	return func(node *yaml.Node, path string) {
		if node.Kind != yaml.ScalarNode || node.Tag != "!!bool" || node.Decode(into) != nil {
			p.Wrong(node, path, "want true or false, not %s", Describe(node))
		}
	}
}

// Rate reads a rate such as 300/s.
func (p *Parser) Rate(into **throttle.Rate) Read {
	return func(node *yaml.Node, path string) {
		if node.Kind != yaml.ScalarNode {
			p.Wrong(node, path, "want a rate such as 300/s, not %s", Describe(node))
			return
		}
		rate, err := throttle.ParseRate(node.Value)
		if err != nil {
			p.Wrong(node, path, "%s", strings.TrimPrefix(err.Error(), "rate "))
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

// Describe says what stands where something else was wanted.
func Describe(node *yaml.Node) string {
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
	return fmt.Sprintf("%.40q", node.Value)
}
