// Command audit looks for known vulnerabilities in what Headgate depends on, and writes
// docs/dependencies.md, the list of all dependencies with their licences.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	failed := false
	for _, part := range []func(root string) error{vulnerabilities, npmAudit, write} {
		if err := part(root); err != nil {
			fmt.Fprintln(os.Stderr, "audit:", err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// unreachable are texts of tools that could not ask their databases.
var unreachable = []string{"no such host", "connection refused", "i/o timeout", "network is unreachable", "ENOTFOUND", "ECONNREFUSED", "EAI_AGAIN", "ETIMEDOUT", "audit endpoint returned an error"}

// check runs a tool that asks a database. Where that cannot be reached, nothing was checked, and it
// says so.
func check(what, database, folder string, command ...string) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = folder
	text, err := cmd.CombinedOutput()
	if err == nil {
		fmt.Printf("%s: no known vulnerability\n", what)
		return nil
	}
	if slices.ContainsFunc(unreachable, func(sign string) bool { return bytes.Contains(text, []byte(sign)) }) {
		fmt.Printf("%s: NOT CHECKED, because its database %s cannot be reached from here\n", what, database)
		return nil
	}
	return fmt.Errorf("%s: %w\n%s", what, err, text)
}

func vulnerabilities(root string) error {
	return check("govulncheck", "https://vuln.go.dev", root, "go", "tool", "-modfile=lint/go.mod", "govulncheck", "./...")
}

// packages are the folders with packages of npm.
var packages = []string{"dashboard/web", "internal/test/browsertest"}

func npmAudit(root string) error {
	var errs []error
	for _, folder := range packages {
		errs = append(errs, check("npm audit in "+folder, "of the npm registry", filepath.Join(root, folder), "npm", "audit", "--package-lock-only"))
	}
	return errors.Join(errs...)
}

func write(root string) error {
	text, err := document(root)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "docs/dependencies.md"), text, 0o644)
}

// dependency is a module or a package.
type dependency struct{ name, version, licence string }

// document returns docs/dependencies.md.
func document(root string) ([]byte, error) {
	programs, err := modules(root, "./cmd/...")
	if err != nil {
		return nil, err
	}
	library, err := modules(root, "./...")
	if err != nil {
		return nil, err
	}
	tests, err := modules(root, "-test", "./...")
	if err != nil {
		return nil, err
	}
	tools, err := modules(root, "-modfile=lint/go.mod", "tool")
	if err != nil {
		return nil, err
	}
	page, pageTools, err := npm(root)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString(`# Dependencies

What Headgate is built from, with licences. ` + "`make audit`" + ` makes this list from the modules
themselves, and looks for known vulnerabilities.
`)
	seen := map[string]bool{}
	for _, section := range []struct {
		title string
		list  map[string]dependency
	}{
		{"In the programs", programs}, {"In packages alone", library}, {"In tests alone", tests}, {"Tools of `make lint` and `make audit`", tools},
		{"In the page", page}, {"Tools of the page and of its tests", pageTools},
	} {
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(section.list)), func(name string) bool { return seen[name] })
		if len(names) == 0 {
			continue
		}
		fmt.Fprintf(&out, "\n## %s\n\n| | Version | Licence |\n|---|---|---|\n", section.title)
		for _, name := range names {
			seen[name] = true
			d := section.list[name]
			fmt.Fprintf(&out, "| %s | %s | %s |\n", d.name, d.version, d.licence)
		}
	}
	return out.Bytes(), nil
}

// modules returns the modules of the packages that go list finds with the arguments.
func modules(root string, arguments ...string) (map[string]dependency, error) {
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=Module"}, arguments...)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", strings.Join(arguments, " "), err)
	}
	all := map[string]dependency{}
	for decoder := json.NewDecoder(bytes.NewReader(text)); decoder.More(); {
		var p struct {
			Module *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		if err := decoder.Decode(&p); err != nil {
			return nil, err
		}
		if m := p.Module; m != nil && !m.Main && all[m.Path] == (dependency{}) {
			licence, err := licenceOf(m.Dir)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.Path, err)
			}
			all[m.Path] = dependency{m.Path, m.Version, licence}
		}
	}
	return all, nil
}

// licenceOf returns the licences in a folder's files, by their SPDX identifiers.
func licenceOf(folder string) (string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return "", err
	}
	found := map[string]bool{}
	for _, entry := range entries {
		name := strings.ToUpper(entry.Name())
		if !entry.Type().IsRegular() || !(strings.HasPrefix(name, "LICEN") || strings.HasPrefix(name, "COPYING") || strings.HasPrefix(name, "UNLICENSE")) {
			continue
		}
		text, err := fs.ReadFile(os.DirFS(folder), entry.Name())
		if err != nil {
			return "", err
		}
		for _, match := range licensecheck.Scan(text).Match {
			if !match.IsURL {
				found[match.ID] = true
			}
		}
	}
	if len(found) == 0 {
		return "", errors.New("no known licence in its files")
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), ", "), nil
}

// npm returns the packages that are in the page, and those of its tools.
func npm(root string) (page, tools map[string]dependency, err error) {
	page, tools = map[string]dependency{}, map[string]dependency{}
	for _, folder := range packages {
		text, err := os.ReadFile(filepath.Join(root, folder, "package-lock.json"))
		if err != nil {
			return nil, nil, err
		}
		var lock struct {
			Packages map[string]struct {
				Version, License string
				Dev, Optional    bool
			}
		}
		if err := json.Unmarshal(text, &lock); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", folder, err)
		}
		for path, p := range lock.Packages {
			if path == "" || p.Optional { // the folder itself, or builds for other machines
				continue
			}
			name := path[strings.LastIndex(path, "node_modules/")+len("node_modules/"):]
			if p.License == "" {
				return nil, nil, fmt.Errorf("%s: %s names no licence", folder, name)
			}
			d := dependency{name, p.Version, p.License}
			if p.Dev || folder != packages[0] {
				tools[name] = d
			} else {
				page[name] = d
			}
		}
	}
	return page, tools, nil
}
