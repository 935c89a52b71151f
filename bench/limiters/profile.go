package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"
)

// profile runs the token bucket once more under every load, alone, and writes
// where this side's CPU went.
func (b *bench) profile(ctx context.Context) error {
	if err := os.MkdirAll(b.config.profile, 0o755); err != nil {
		return err
	}
	for _, l := range loads {
		for _, c := range b.contenders {
			if c.name != tokenBucket {
				continue
			}
			name := strings.NewReplacer(", ", "-", " ", "-").Replace(l.String()) + ".pprof"
			if err := b.profileSlice(ctx, c, l, filepath.Join(b.config.profile, name)); err != nil {
				return fmt.Errorf("profile of %v: %w", l, err)
			}
		}
	}
	return nil
}

func (b *bench) profileSlice(ctx context.Context, c *contender, l load, path string) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	_, err = b.slice(ctx, c, l, max(b.config.slice*time.Duration(b.config.rounds), time.Second))
	return err
}
