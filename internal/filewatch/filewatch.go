// Package filewatch reloads files when they change.
//
// It polls the files instead of subscribing to events. Polling works in every kind of folder:
// on network file systems, and where editors, Kubernetes and certificate tools replace files
// and folders instead of writing to them.
package filewatch

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"time"

	"github.com/headgate/headgate/internal/wait"
)

// Stamp identifies a version of a file. The zero Stamp means that the file cannot be read
// with [os.Stat].
type Stamp struct {
	Mode fs.FileMode
	Size int64
	At   time.Time
	// Fresh says that the file had just changed when it was looked at. Another change can have the same time
	// then, so a version with a fresh file is not taken for the one that is there later.
	Fresh bool
}

// tick is longer than files of the common systems keep the same time of their last change.
const tick = 20 * time.Millisecond

// Version maps the paths of files to their stamps.
type Version map[string]Stamp

// Look returns the current version of the files.
func Look(paths ...string) Version {
	v := Version{}
	for _, path := range paths {
		v.Add(path)
	}
	return v
}

// Add puts the current stamp of a file into v.
func (v Version) Add(path string) {
	v[path] = Stamp{}
	if info, err := os.Stat(path); err == nil {
		age := time.Since(info.ModTime())
		v[path] = Stamp{info.Mode().Perm(), info.Size(), info.ModTime(), age >= 0 && age < tick}
	}
}

// Failed takes the stamp of a file from v that the error says could not be opened or read, and returns whether there is one.
// That may work a moment later without a change of the file, so [Run] tries again while the file is there.
func (v Version) Failed(err error) bool {
	failed, ok := errors.AsType[*fs.PathError](err)
	if ok {
		v[failed.Path] = Stamp{}
	}
	return ok
}

// Run calls read when the files of seen have changed and then stayed the same for one more
// poll, because a file that still changes may be half written. The interval between polls is
// every plus a millisecond for each file. read returns the version that it loaded or
// rejected, as of before it read the files. Run passes its errors to refuse, but if a file is
// there and cannot be opened or read, Run tries again at every second poll and passes the same
// error only once. Run returns when ctx is done.
func Run(ctx context.Context, every time.Duration, seen Version, read func() (Version, error), refuse func(error)) {
	var restless Version
	said := "" // the error of the last read; "": none
	for wait.For(ctx, every+time.Duration(len(seen))*time.Millisecond) == nil {
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
			version, err := read()
			again := version.Failed(err)
			seen, restless = version, nil
			if err == nil {
				said = ""
			} else if text := err.Error(); !again || text != said {
				said = text
				refuse(err)
			}
		}
	}
}
