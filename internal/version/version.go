// Package version says which build a program is.
package version

import (
	"cmp"
	"runtime/debug"
)

// stamped is set by the linker where the sources have no history, as in the container image:
//
//	go build -ldflags "-X github.com/headgate/headgate/internal/version.stamped=v1.2.3"
var stamped string

// Program returns the version of the program: the stamped one, that of its module, or the
// commit that it was built from, with "+changes" if files were changed since; "" if none is known.
func Program() string {
	commit, changed := Revision()
	if build, ok := debug.ReadBuildInfo(); ok && build.Main.Version != "" && build.Main.Version != "(devel)" {
		return cmp.Or(stamped, build.Main.Version)
	}
	if commit == "" {
		return stamped
	}
	commit = commit[:min(len(commit), 12)]
	if changed {
		commit += "+changes"
	}
	return cmp.Or(stamped, commit)
}

// Revision returns the commit that the program was built from, and whether files were changed
// since; "" if it is not known.
func Revision() (commit string, changed bool) {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return "", false
	}
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			commit = setting.Value
		case "vcs.modified":
			changed = setting.Value == "true"
		}
	}
	return commit, changed
}
