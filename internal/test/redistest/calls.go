package redistest

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Calls returns how often a server has run a command, by its name in lower case, also in scripts.
func Calls(t testing.TB, client redis.UniversalClient, command string) (n int) {
	t.Helper()
	stats, err := client.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	if text := stats["Commandstats"]["cmdstat_"+command]; text != "" { // else it has never run
		if _, err := fmt.Sscanf(text, "calls=%d,", &n); err != nil {
			t.Fatalf("redistest: %s: %q: %v", command, text, err)
		}
	}
	return n
}
