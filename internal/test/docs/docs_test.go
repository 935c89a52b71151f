// Package docs_test checks that the documents speak of what exists: their links, the files,
// tests and Go names that they mention.
package docs_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/headgate/headgate/internal/payloads"
)

const root = "../../.."

// documents are the Markdown files of the project, by their path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "dashboard/web/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatal(pattern, paths, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[path] = string(text)
		}
	}
	return texts
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	code    = regexp.MustCompile("`([^`\n]+)`")
	test    = regexp.MustCompile(`\b(?:Test|Example|Benchmark|Fuzz)[A-Z]\w*`)
	goName  = regexp.MustCompile(`^([a-z]+)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)
	file    = regexp.MustCompile(`^[\w./-]+\.(?:go|lua|yaml|yml|json|ndjson|mjs|tsx?|md)$`)
)

// TestLinks follows every link to another page or to a heading.
func TestLinks(t *testing.T) {
	texts := documents(t)
	anchors := map[string]map[string]bool{}
	for path, text := range texts {
		anchors[path] = map[string]bool{}
		for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			anchors[path][anchor(m[1])] = true
		}
	}
	links := 0
	for path, text := range texts {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			page, fragment, _ := strings.Cut(m[1], "#")
			target := path
			if page != "" {
				target = filepath.Join(filepath.Dir(path), page)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link %s: %v", path, m[1], err)
			} else if fragment != "" && !anchors[target][fragment] {
				t.Errorf("%s: link %s: the page has no such heading", path, m[1])
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links were found", links)
	}
}

// anchor is what GitHub makes of a heading.
func anchor(heading string) string {
	heading = link.ReplaceAllString(heading, "]")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// TestNames looks up the tests, the exported Go names and the files that documents mention.
func TestNames(t *testing.T) {
	declared, tests, files := declarations(t)
	names, found := 0, 0
	for path, text := range documents(t) {
		if filepath.Base(path) == "CHANGELOG.md" {
			continue // it speaks of what was
		}
		for _, name := range test.FindAllString(text, -1) {
			// A test in an example is defined by the page itself.
			if found++; !tests[name] && !strings.Contains(text, "func "+name+"(") {
				t.Errorf("%s: there is no %s", path, name)
			}
		}
		for _, m := range code.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if file.MatchString(m[1]) && !files[filepath.Base(m[1])] {
				t.Errorf("%s: there is no file %s", path, m[1])
			}
			if n := goName.FindStringSubmatch(m[1]); n != nil && declared[n[1]] != nil {
				names++
				name := n[2]
				if n[3] != "" {
					name += "." + n[3]
				}
				if !declared[n[1]][name] {
					t.Errorf("%s: package %s has no %s", path, n[1], name)
				}
			}
		}
	}
	if names < 20 || found < 100 {
		t.Errorf("only %d Go names and %d tests were found", names, found)
	}
}

var (
	quoted    = regexp.MustCompile("`([^`]+)`")
	command   = regexp.MustCompile(`^(?:enqueue|worker|redis-cli|date) `)
	words     = regexp.MustCompile(`[a-z']+(?:,? [a-z']+){2,}`)
	joined    = regexp.MustCompile("[\"`]\\s*\\+\\s*[\"`]")
	sources   = map[string]bool{".go": true, ".lua": true, ".ts": true, ".tsx": true}
	elsewhere = map[string]bool{"address already in use": true} // messages of the system
)

// TestMessages looks up what the page of symptoms quotes: people search it for what they read.
func TestMessages(t *testing.T) {
	var all strings.Builder
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git" || entry.Name() == "dist"):
			return fs.SkipDir
		case entry.IsDir() || !sources[filepath.Ext(path)] || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	source := strings.Join(strings.Fields(joined.ReplaceAllString(all.String(), "")), " ")
	page, err := os.ReadFile(filepath.Join(root, "docs", "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, m := range quoted.FindAllStringSubmatch(fence.ReplaceAllString(string(page), ""), -1) {
		message := strings.Join(strings.Fields(m[1]), " ")
		if command.MatchString(message) {
			continue
		}
		for _, part := range words.FindAllString(message, -1) {
			if found++; !strings.Contains(source, part) && !elsewhere[part] {
				t.Errorf("%q is quoted, but nothing says %q", message, part)
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d messages were found", found)
	}
}

// declarations are the exported names by package, with methods and fields as Type.Name, all
// tests, and the names of all files.
func declarations(t *testing.T) (declared map[string]map[string]bool, tests, files map[string]bool) {
	t.Helper()
	declared, tests, files = map[string]map[string]bool{}, map[string]bool{}, map[string]bool{}
	fset := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git") {
			return fs.SkipDir
		}
		files[entry.Name()] = true
		if entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		parsed, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		pkg := declared[parsed.Name.Name]
		if pkg == nil {
			pkg = map[string]bool{}
			declared[parsed.Name.Name] = pkg
		}
		for _, decl := range parsed.Decls {
			declare(decl, pkg)
			if f, ok := decl.(*ast.FuncDecl); ok && strings.HasSuffix(path, "_test.go") {
				tests[f.Name.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	delete(declared, "main")
	return declared, tests, files
}

func declare(decl ast.Decl, into map[string]bool) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		name := decl.Name.Name
		if decl.Recv != nil {
			name = receiver(decl.Recv.List[0].Type) + "." + name
		}
		into[name] = true
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					into[name.Name] = true
				}
			case *ast.TypeSpec:
				into[spec.Name.Name] = true
				members(spec, into)
			}
		}
	}
}

// members are the fields of a struct and the methods of an interface.
func members(spec *ast.TypeSpec, into map[string]bool) {
	var list *ast.FieldList
	switch of := spec.Type.(type) {
	case *ast.StructType:
		list = of.Fields
	case *ast.InterfaceType:
		list = of.Methods
	default:
		return
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			into[spec.Name.Name+"."+name.Name] = true
		}
		if len(field.Names) == 0 {
			into[spec.Name.Name+"."+receiver(field.Type)] = true // embedded
		}
	}
}

// receiver is the name of a type without its pointer, package and parameters.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.SelectorExpr:
		return of.Sel.Name
	case *ast.Ident:
		return of.Name
	}
	return ""
}

// TestPayloadExamples: workers accept the payloads that a page shows.
func TestPayloadExamples(t *testing.T) {
	kinds := map[string]int{}
	for line := range strings.Lines(documents(t)[filepath.Join(root, "docs/clients.md")]) {
		if !strings.HasPrefix(line, `{"kind":`) {
			continue
		}
		var job struct {
			Kind    string
			Payload json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &job); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		kinds[job.Kind]++
		for _, wrong := range payloads.Check(job.Kind, job.Payload) {
			t.Errorf("%s: %v", line, wrong)
		}
	}
	for _, kind := range []string{"webhook", "email", "ai", "payment"} {
		if kinds[kind] == 0 {
			t.Errorf("kind %s has no example", kind)
		}
	}
}
