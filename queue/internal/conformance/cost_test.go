package conformance

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// traffic returns how many commands a server has processed, those of scripts included, and how many bytes clients
// have sent and received.
func traffic(t *testing.T, client redis.UniversalClient) (commands, bytes int64) {
	t.Helper()
	info, err := client.InfoMap(t.Context(), "commandstats", "stats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range info["Commandstats"] {
		if name == "cmdstat_info" {
			continue
		}
		calls, _, _ := strings.Cut(strings.TrimPrefix(text, "calls="), ",")
		n, err := strconv.ParseInt(calls, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		commands += n
	}
	for _, name := range []string{"total_net_input_bytes", "total_net_output_bytes"} {
		n, err := strconv.ParseInt(info["Stats"][name], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		bytes += n
	}
	return commands, bytes
}

// TestCostOfCounting: counting costs Redis a part of a command for each job, two for each call without a job, and few bytes,
// once it knows the tenants. The figures of docs/conformance.md are these.
func TestCostOfCounting(t *testing.T) {
	t.Parallel()
	perEndpoint := limits.Limit{Name: "endpoint", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(50), Per: []string{limits.EndpointAttribute}}
	for name, test := range map[string]struct {
		more            []limits.Limit
		call            told // without its tenant, its moment and how long it waited
		direct          bool
		commands, bytes float64 // for each call
	}{
		"jobs":                            {commands: 0.6, bytes: 60},
		"jobs that call an endpoint":      {call: told{endpoint: "hooks.example.com:443"}, commands: 0.6, bytes: 110},
		"jobs under a limit per endpoint": {more: []limits.Limit{perEndpoint}, call: told{endpoint: "hooks.example.com:443"}, commands: 0.6, bytes: 110},
		"calls without a job":             {direct: true, commands: 2.2, bytes: 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			commands, bytes := costOfCounting(t, test.more, test.call, test.direct)
			t.Logf("%.3f commands and %.1f bytes for each call", commands, bytes)
			if commands > test.commands || bytes > test.bytes {
				t.Errorf("%.3f commands and %.1f bytes for each call; want at most %.1f and %.0f", commands, bytes, test.commands, test.bytes)
			}
		})
	}
}

// costOfCounting returns the commands and bytes that counting costs for each call of 200 tenants with 5 calls/s each, and
// what workers add to the records of jobs for it.
func costOfCounting(t *testing.T, more []limits.Limit, call told, direct bool) (commands, bytes float64) {
	client := redistest.Start(t).Client()
	a := &audited{t, client, partition.Layout{Queue: "q", N: 1}, append([]limits.Limit{
		{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(5), Per: []string{"tenant"}},
		{Name: "account", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(1000)},
	}, more...)}
	a.publish("q", a.rules)
	begins := time.Now()
	if hour := begins.Truncate(time.Hour); begins.Add(time.Minute).After(hour.Add(time.Hour)) {
		begins = begins.Add(-time.Minute) // when an hour ends, what was counted of it is stored
	}
	auditor, at := NewAuditor(a.of, client), begins.UnixMicro()
	const tenants, each = 200, 15 // in 3 s
	together := 5                 // as many jobs as are settled together at 500/s
	if direct {
		together = 1
	}
	var added int64 // bytes in the records of a round's calls
	round := func() {
		var calls []told
		added = 0
		for i := range tenants * each {
			c := call
			c.tenant, c.at, c.cost, c.direct = fmt.Sprintf("tenant-%d", i%tenants), at+int64(i)*1000, 1, direct
			if !direct {
				c.waited = "@" + strconv.Itoa(i)
				taken, attributes := c.counted()
				added += int64(len(taken) + len(attributes)) // both are empty if the queue does not count calls
			}
			calls = append(calls, c)
		}
		for some := range slices.Chunk(calls, together) {
			a.event("", some...)
		}
		at += 3e6
	}
	for range 3 {
		round()
		a.count(auditor)
	}
	round()
	before, bytesBefore := traffic(t, client)
	_, info := traffic(t, client)
	a.count(auditor)
	after, bytesAfter := traffic(t, client)
	const calls = tenants * each
	if direct {
		after += calls // direct.lua adds an entry for each, in Redis
	}
	return float64(after-before) / calls, float64(bytesAfter-bytesBefore-(info-bytesBefore)+added) / calls
}
