package redisscript

import (
	"slices"
	"strings"
	"sync"
)

// linked returns a body with the declarations of libraries that it uses in front of it.
// Redis creates a script's functions anew at every call, so each of them costs time.
//
// Each library is a block. What is used after it is declared before it, and everything else ends
// with it, because a Lua function has room for 200 local names.
//
// A library consists only of declarations: each begins with `local` or `function` at the
// start of a line and ends where the next one begins. No two declare the same name. A declaration
// is used if its name is a word of the body, or of a later declaration that is used. A word that
// means something else, such as a field, may keep too much, but never too little.
func linked(body string, libraries []string) string {
	var all []declaration
	ends := make([]int, len(libraries)) // of each library
	for i, library := range libraries {
		all = append(all, parsed(library)...)
		ends[i] = len(all)
	}
	body = code(body)
	inBody := words(body)
	declared := map[string][]int{} // where each name is declared
	for i, d := range all {
		for _, name := range d.names {
			declared[name] = append(declared[name], i)
		}
	}
	var reach func(words []string, end int)
	keep := func(i int) {
		if d := &all[i]; !d.kept {
			d.kept = true
			reach(d.words, i)
		}
	}
	// reach keeps what a text with these words uses of the first `end` declarations, which come before it.
	reach = func(words []string, end int) {
		for _, word := range words {
			at := declared[word]
			before, _ := slices.BinarySearch(at, end)
			if before == 0 {
				continue
			}
			keep(at[before-1])
			// A name that is declared may be given its functions later.
			for _, i := range at[before:] {
				if all[i].later && all[i].names[0] == word {
					keep(i)
				}
			}
		}
	}
	reach(inBody, len(all))
	text, used := body, map[string]bool{}
	use := func(words []string) {
		for _, word := range words {
			used[word] = true
		}
	}
	use(inBody)
	for i, end := range slices.Backward(ends) {
		begin := 0
		if i > 0 {
			begin = ends[i-1]
		}
		library := slices.DeleteFunc(slices.Clone(all[begin:end]), func(d declaration) bool { return !d.kept })
		text = block(library, used) + text
		for _, d := range library {
			use(d.words)
		}
	}
	return text
}

// block returns the text of a library's declarations before a text with the words that are used.
func block(library []declaration, used map[string]bool) string {
	if len(library) == 0 {
		return ""
	}
	var shared []string
	var whole, inside strings.Builder
	own := false
	for _, d := range library {
		whole.WriteString(d.text)
		switch {
		case d.later:
			inside.WriteString(d.text)
		case !slices.ContainsFunc(d.names, func(name string) bool { return used[name] }):
			inside.WriteString(d.text)
			own = true
		default:
			shared = append(shared, d.names...)
			inside.WriteString(d.assigned())
		}
	}
	if !own {
		return whole.String()
	}
	return "local " + strings.Join(shared, ", ") + "\ndo\n" + inside.String() + "end\n"
}

// declaration is a statement of a library: local names, or a function that belongs to one.
type declaration struct {
	names []string
	bare  int  // where a list of names without values ends in text; 0: there are values
	later bool // a function of a name that was declared before, such as make.rate of make
	text  string
	words []string // of text
	kept  bool
}

// assigned returns the text of a declaration whose names are declared before it.
func (d declaration) assigned() string {
	if d.bare > 0 { // they are nil; gopher-lua 1.1.1 may clear others, too, for `x = nil` in front of `local y`
		return strings.TrimPrefix(d.text[d.bare:], ";")
	}
	return strings.TrimPrefix(d.text, "local ")
}

// code returns a Lua text without its empty lines and comment lines.
func code(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\n"); strings.TrimSpace(line) != "" && !strings.HasPrefix(strings.TrimSpace(line), "--") {
			kept.WriteString(line + "\n")
		}
	}
	return kept.String()
}

// parsedLibraries has the declarations of each library by its text, because dozens of scripts use the same.
var parsedLibraries sync.Map

// parsed returns the declarations of a library.
func parsed(library string) []declaration {
	if all, known := parsedLibraries.Load(library); known {
		return all.([]declaration)
	}
	all := declarations(code(library))
	for i := range all {
		all[i].words = words(all[i].text)
	}
	parsedLibraries.Store(library, all)
	return all
}

// declarations splits a library.
func declarations(library string) []declaration {
	var all []declaration
	begins, at := 0, 0
	for line := range strings.Lines(library) {
		if d, found := declares(line); found {
			if len(all) > 0 {
				all[len(all)-1].text = library[begins:at]
			}
			all, begins = append(all, d), at
		}
		at += len(line)
	}
	all[len(all)-1].text = library[begins:]
	return all
}

// declares returns the declaration that begins on a line.
func declares(line string) (d declaration, found bool) {
	rest, local := strings.CutPrefix(line, "local ")
	rest, function := strings.CutPrefix(rest, "function ")
	switch {
	case function:
		d.names, d.later = words(rest)[:1], !local
	case local:
		end := strings.IndexAny(rest, "=-;\n")
		d.names = words(rest[:end])
		if rest[end] != '=' {
			d.bare = len("local ") + end
		}
	}
	return d, function || local
}

// words returns the names in a Lua text except those of fields, and other words that look
// like names.
func words(text string) []string {
	text = strings.ReplaceAll(text, "..", " ")
	all := strings.FieldsFunc(text, func(r rune) bool {
		return r != '_' && r != '.' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
	for i, word := range all {
		all[i], _, _ = strings.Cut(word, ".")
	}
	return all
}
