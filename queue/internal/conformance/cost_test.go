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

// TestCostOfCounting: counting costs Redis a part of a command for each call, and few bytes, once it knows the tenants.
func TestCostOfCounting(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	a := &audited{t, client, partition.Layout{Queue: "q", N: 1}, []limits.Limit{
		{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(5), Per: []string{"tenant"}},
		{Name: "account", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(1000)},
	}}
	a.publish("q", a.rules)
	begins := time.Now()
	if hour := begins.Truncate(time.Hour); begins.Add(time.Minute).After(hour.Add(time.Hour)) {
		begins = begins.Add(-time.Minute) // when an hour ends, what was counted of it is stored
	}
	auditor, at := NewAuditor(a.of, client), begins.UnixMicro()
	const tenants, each = 200, 15 // in 3 s
	sent := int64(0)              // bytes that workers add to the records of a round's calls
	round := func() {
		var calls []told
		sent = 0
		for i := range tenants * each {
			calls = append(calls, told{tenant: fmt.Sprintf("tenant-%d", i%tenants), at: at + int64(i)*1000, cost: 1, waited: "@" + strconv.Itoa(i)})
			sent += int64(len(calls[i].waited))
		}
		for some := range slices.Chunk(calls, 5) { // as many as are settled together at 500/s
			a.event("", some...)
		}
		at += 3e6
	}
	for range 3 {
		round()
		a.count(auditor)
	}
	round()
	commands, bytes := traffic(t, client)
	_, info := traffic(t, client)
	a.count(auditor)
	commandsAfter, bytesAfter := traffic(t, client)
	calls := float64(tenants * each)
	perCall, bytesPerCall := float64(commandsAfter-commands)/calls, float64(bytesAfter-bytes-(info-bytes)+sent)/calls
	t.Logf("%.3f commands and %.1f bytes for each of %.0f calls", perCall, bytesPerCall, calls)
	if perCall > 0.6 || bytesPerCall > 60 {
		t.Errorf("%.3f commands and %.1f bytes for each call; want at most 0.6 and 60", perCall, bytesPerCall)
	}
}
