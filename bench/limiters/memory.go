package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// weight is what the keys of a contender cost Redis.
type weight struct {
	Contender string  `json:"contender"`
	Keys      int64   `json:"keys"`
	Bytes     float64 `json:"bytes_per_key"` // with its share of the tables that hold the keys
	KeyBytes  int     `json:"key_length"`
}

// memory weighs fresh keys, each after one decision that took one permit.
func (b *bench) memory(ctx context.Context) ([]weight, error) {
	var weights []weight
	for _, c := range slices.Concat(b.contenders, b.weighed) {
		if c.lasting == nil {
			continue
		}
		w, err := b.weigh(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("memory of %s: %w", c.name, err)
		}
		weights = append(weights, w)
	}
	// Their expiry is no business of the race.
	return weights, b.admin.FlushAll(ctx).Err()
}

func (b *bench) weigh(ctx context.Context, c *contender) (weight, error) {
	// The first decision loads what is loaded once.
	if _, err := c.lasting(ctx, c.key(lastingKeys)); err != nil {
		return weight{}, err
	}
	if err := b.admin.FlushAll(ctx).Err(); err != nil {
		return weight{}, err
	}
	before, err := b.settled(ctx)
	if err != nil {
		return weight{}, err
	}
	for i := range b.config.fresh {
		if admitted, err := c.lasting(ctx, c.key(lastingKeys+i)); err != nil || !admitted {
			return weight{}, fmt.Errorf("first call of a fresh key: admitted %v, %w", admitted, err)
		}
	}
	after, err := b.settled(ctx)
	if err != nil {
		return weight{}, err
	}
	keys, err := b.admin.DBSize(ctx).Result()
	if err != nil {
		return weight{}, err
	}
	if keys == 0 || keys%int64(b.config.fresh) != 0 {
		return weight{}, fmt.Errorf("%d keys are left of %d calls; did some expire?", keys, b.config.fresh)
	}
	length, err := b.keyBytes(ctx)
	return weight{Contender: c.name, Keys: keys, Bytes: float64(after-before) / float64(keys), KeyBytes: length}, err
}

// settled is the memory in use once it does not change any more: tables that
// grew are then rehashed and their old halves freed.
func (b *bench) settled(ctx context.Context) (int64, error) {
	const same, apart, most = 3, 110 * time.Millisecond, 100
	var last int64
	for seen, tries := 0, 0; seen < same; tries++ {
		if tries == most {
			return 0, errors.New("used_memory does not come to rest")
		}
		time.Sleep(apart)
		used, err := b.used(ctx)
		if err != nil {
			return 0, err
		}
		if used == last {
			seen++
		} else {
			last, seen = used, 0
		}
	}
	return last, ctx.Err()
}

// used is the memory in use, without the buffers of connections.
func (b *bench) used(ctx context.Context) (int64, error) {
	text, err := b.admin.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	var used int64
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "used_memory" && name != "mem_clients_normal" {
			continue
		}
		bytes, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("info: %w", err)
		}
		if name == "mem_clients_normal" {
			bytes = -bytes
		}
		used += bytes
	}
	return used, nil
}

// keyBytes is the length of all keys there are; it is an error if they differ.
func (b *bench) keyBytes(ctx context.Context) (int, error) {
	length := 0
	keys := b.admin.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		key := keys.Val()
		if length != 0 && len(key) != length {
			return 0, fmt.Errorf("key %q is not %d bytes long, as others are", key, length)
		}
		length = len(key)
	}
	return length, keys.Err()
}
