// Package filewatch reads files again when they change.
//
// It looks at them instead of being told, which works in every kind of folder: on a network,
// and where editors, Kubernetes and renewers of certificates replace files and folders
// rather than write them.
package filewatch

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"time"
)

// Stamp tells one version of a file from the next. The zero Stamp is that of a file that
// cannot be looked at.
type Stamp struct {
	Mode fs.FileMode
	Size int64
	At   time.Time
}

// Version is the stamps of files by their paths.
type Version map[string]Stamp

// Look returns the version of some files as they are now.
func Look(paths ...string) Version {
	v := Version{}
	for _, path := range paths {
		v.Add(path)
	}
	return v
}

// Add puts the stamp of a file into a version.
func (v Version) Add(path string) {
	v[path] = Stamp{}
	if info, err := os.Stat(path); err == nil {
		v[path] = Stamp{info.Mode().Perm(), info.Size(), info.ModTime()}
	}
}

// Run calls read each time that the files of a version have changed and were then left
// alone from one look to the next, because what still changes may be half written. It looks
// that often, and a millisecond later for each file. read returns the version that it took
// or refused, as it was before it read. Run ends with ctx.
func Run(ctx context.Context, every time.Duration, seen Version, read func() Version) {
	var restless Version
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every + time.Duration(len(seen))*time.Millisecond):
		}
		now := Version{}
		for path := range seen {
			now.Add(path)
		}
		switch {
		case maps.Equal(now, seen):
			restless = nil
		case !maps.Equal(now, restless):
			restless = now
		default:
			seen, restless = read(), nil
		}
	}
}
