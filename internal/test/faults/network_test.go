package faults

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// ofNetwork are faults between Redis and the programs.
var ofNetwork = []scenario{
	{
		name: "lost-replies", fault: "of each kind of command in turn, the reply to the first and to every 50th is lost",
		jobs: 13000, before: func(x *show) { x.relayed(scriptNames(x.T)) },
		strike:  (*show).loseReplies,
		promise: promise{used: 0.8},
	},
	{
		name: "slow", fault: "each request to Redis takes 50 ms longer, for 15 s",
		jobs: 2000, before: func(x *show) { x.relayed(nil) },
		strike:  (*show).slow,
		promise: promise{used: 0.8},
	},
	{
		name: "slow-leases", fault: "each request to Redis takes 50 ms longer, for 15 s, under a limit that partitions share",
		limits: `queues: {webhook: {kinds: [webhook], partitions: 4, limits: [{name: account, algorithm: leaky_bucket, rate: 100/s}]}}
tenants: {acme: {partition: 1}}`,
		jobs: 2000, before: func(x *show) { x.relayed(nil) },
		strike:  (*show).slow,
		promise: promise{used: 0.9},
	},
}

// slow makes each request to Redis take longer for a while.
func (x *show) slow() {
	x.relay.Delay(50 * time.Millisecond)
	time.Sleep(15 * time.Second) // the fault itself
	x.relay.Delay(0)
}

// relayed puts a relay between Redis and the programs.
func (x *show) relayed(name func(string) string) {
	x.T.Helper()
	x.relay = x.Redis.Relay(nil, name)
	x.URL = x.relay.URL()
}

// loseReplies goes on until it has met no kind of command that it does not know.
func (x *show) loseReplies() {
	// Scripts are sent again, so that the relay knows their names.
	if err := x.Redis.Client().ScriptFlush(x.T.Context()).Err(); err != nil {
		x.T.Fatal(err)
	}
	time.Sleep(3 * time.Second) // the heartbeats and chores are sent, too
	tried := map[string]int{}
	for {
		next := ""
		for kind := range x.relay.Seen() {
			if _, done := tried[kind]; !done && kind != "hello" && kind != "client" && (next == "" || kind < next) {
				next = kind
			}
		}
		if next == "" {
			break
		}
		met, before := 0, x.relay.Lost()
		x.relay.Lose(func(kind string) bool {
			if kind != next {
				return false
			}
			met++
			return met%50 == 1
		})
		time.Sleep(2 * time.Second) // the fault itself
		x.relay.Lose(nil)
		tried[next] = x.relay.Lost() - before
	}
	kinds := []string{}
	for kind := range tried {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	for _, kind := range kinds {
		x.T.Logf("%d replies to %s were lost", tried[kind], kind)
	}
	if tried["dispatch.lua"] == 0 || tried["settle.lua"] == 0 {
		x.T.Error("no reply was lost where it matters")
	}
}

// scriptNames returns the names of scripts by their texts: the last file that a text contains.
func scriptNames(t testing.TB) func(script string) string {
	t.Helper()
	bodies := map[string]string{}
	for _, pattern := range []string{"queue/internal/store/*.lua", "internal/limitlua/*.lua"} {
		paths, err := filepath.Glob(filepath.Join("..", "..", "..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var body strings.Builder
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimRight(line, "\n"); strings.TrimSpace(line) != "" && !strings.HasPrefix(strings.TrimSpace(line), "--") {
					body.WriteString(line + "\n")
				}
			}
			bodies[filepath.Base(path)] = body.String()
		}
	}
	return func(script string) string {
		found, last := "script", -1 // libraries come before the script
		for name, body := range bodies {
			if at := strings.LastIndex(script, body); at > last {
				found, last = name, at
			}
		}
		return found
	}
}
