package credentials

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/filewatch"
)

// Check tells what is wrong with the secrets of a kind, or nil, without repeating
// any of them.
type Check func(kind string, s *Secrets) error

// HeldError reports that a tenant's secrets are not to be had, and that no others
// may stand in for them.
type HeldError struct {
	Kind, Tenant string
	Reason       string // such as that a file is missing
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("no credentials for %s of tenant %s: %s; its jobs wait until there are", e.Kind, e.Tenant, e.Reason)
}

// NotCalled is true: nothing was called without them.
func (e *HeldError) NotCalled() bool { return true }

// Store holds the secrets in force. A nil one holds none. It is safe for
// concurrent use.
type Store struct {
	path   string
	logger *slog.Logger
	check  Check

	mu      sync.RWMutex
	tenants map[string]map[string]entry

	// Of the goroutine of Run.
	decided filewatch.Version // that was taken or refused last
	warned  filewatch.Version
}

// Open reads the file. The error names the mistakes in it.
func Open(path string, logger *slog.Logger, check Check) (*Store, error) {
	s := &Store{path: path, logger: logger, check: check, warned: filewatch.Version{}}
	v, err := read(path, check)
	if err != nil {
		return nil, err
	}
	s.take(v)
	return s, nil
}

// Has tells whether any tenant has an entry for the kind.
func (s *Store) Has(kind string) bool {
	if s == nil {
		return false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, kinds := range s.tenants {
		if _, ok := kinds[kind]; ok {
			return true
		}
	}
	return false
}

// For is what a tenant has of its own for a kind: nil when it has nothing, and a
// [HeldError] when it is to have something and cannot.
func (s *Store) For(kind, tenant string) (*Secrets, error) {
	if s == nil {
		return nil, nil
	}
	s.mu.RLock()
	e := s.tenants[tenant][kind]
	s.mu.RUnlock()
	if e.held != "" {
		return nil, &HeldError{kind, tenant, e.held}
	}
	return e.secrets, nil
}

// Run reads the file again whenever it, or one that it names, has changed, until ctx is
// done. A file with mistakes changes nothing.
func (s *Store) Run(ctx context.Context) error {
	filewatch.Run(ctx, time.Second, s.decided, func() (filewatch.Version, error) {
		v, err := read(s.path, s.check)
		if err == nil {
			s.take(v)
		}
		s.decided = v.stamps
		return s.decided, err
	}, func(err error) {
		s.logger.Error("the credentials file was not taken; the credentials in force stay", "error", err)
	})
	return nil
}

// take puts a version in force. It is logged once: a file that cannot be opened is tried again and again.
func (s *Store) take(v version) {
	say := !maps.Equal(s.decided, v.stamps)
	s.mu.Lock()
	s.tenants = v.tenants
	s.mu.Unlock()
	s.decided = v.stamps
	if say {
		s.logger.Info("the credentials file is in force", "file", s.path, "tenants", len(v.tenants))
	}
	for _, path := range slices.Sorted(maps.Keys(v.stamps)) {
		const others = 0o137 // all but reading and writing by the owner, and reading by the group
		if now := v.stamps[path]; now.Mode&others != 0 && s.warned[path].Mode != now.Mode {
			s.logger.Warn("SECRETS IN A FILE THAT OTHERS CAN READ OR CHANGE: chmod 600 it, or 640", "file", path, "mode", fmt.Sprintf("%04o", now.Mode))
		}
	}
	s.warned = v.stamps
	for _, tenant := range slices.Sorted(maps.Keys(v.tenants)) {
		for _, kind := range slices.Sorted(maps.Keys(v.tenants[tenant])) {
			if held := v.tenants[tenant][kind].held; held != "" && say {
				s.logger.Warn("a tenant's jobs wait for its credentials", "tenant", tenant, "kind", kind, "reason", held)
			}
		}
	}
}
