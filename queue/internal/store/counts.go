package store

import (
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Counts is what a queue counts of a tenant's jobs, or under [WholeQueue] of all.
type Counts struct {
	Waiting int64 // jobs in lanes
	Done    int64 // calls that succeeded, ever
	Jobs    int64 // jobs in all states, unless other programs than Headgate enqueued them
	Bytes   int64 // their sizes; see tenant_read in formats.lua
	Tenants int64 // with waiting jobs; only of the whole queue
}

// TenantsKey is the key of the hash of a queue's counts.
func TenantsKey(queue string) string { return Key(queue, "tenants") }

const sizeUnit = 64

// ReadCounts reads a value of that hash. Zero: it does not exist or is damaged, which a fault tells.
func ReadCounts(text string) Counts {
	words := append(strings.Fields(text), "0")
	if len(words) < 5 {
		return Counts{}
	}
	var n [5]int64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseInt(words[i], 10, 64); err != nil {
			return Counts{}
		}
	}
	return Counts{n[0], n[1], n[2], n[3] * sizeUnit, n[4]}
}

// ReadAllCounts reads the values of several fields.
func ReadAllCounts(fields []string, reply *redis.SliceCmd) map[string]Counts {
	all := make(map[string]Counts, len(fields))
	for i, text := range Texts(reply.Val()) {
		all[fields[i]] = ReadCounts(text)
	}
	return all
}
