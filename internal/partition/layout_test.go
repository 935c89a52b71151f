package partition

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/rediskey"
)

// TestOf: where jobs lie must not change with a version of the code.
func TestOf(t *testing.T) {
	want := map[string]int{"acme": 6, "globex": 6, "initech": 3, "": 4, "Zürich": 3}
	for tenant, i := range want {
		if got := (Layout{Queue: "webhook", N: 8}).Of(tenant); got != i {
			t.Errorf("%q is in partition %d; want %d", tenant, got, i)
		}
	}
	if got := (Layout{Queue: "webhook", N: 8, Pins: map[string]int{"acme": 7}}).Of("acme"); got != 7 {
		t.Errorf("a tenant pinned to 7 is in %d", got)
	}
}

// TestBalance: each partition has its part of 10^5 tenants, and few move when one is added.
func TestBalance(t *testing.T) {
	const tenants = 100_000
	for _, n := range []int{1, 2, 3, 8, 63} {
		before, after := Layout{Queue: "q", N: n}, Layout{Queue: "q", N: n + 1}
		counts, moved := make([]float64, n+2), 0
		for i := range tenants {
			tenant := fmt.Sprintf("tenant-%d", i)
			was, is := before.Of(tenant), after.Of(tenant)
			counts[was]++
			if is != was {
				if moved++; is != n+1 {
					t.Fatalf("%s moves from %d to %d when %d is added", tenant, was, is, n+1)
				}
			}
		}
		// Five standard deviations: one run in a million would fail if it were chance.
		near := func(what string, got, part float64) {
			if want := tenants * part; math.Abs(got-want) > 5*math.Sqrt(want*(1-part)) {
				t.Errorf("of %d partitions, %s %v tenants; want about %.0f", n, what, got, want)
			}
		}
		for i := 1; i <= n; i++ {
			near(fmt.Sprintf("partition %d has", i), counts[i], 1/float64(n))
		}
		near("the next one moves", float64(moved), 1/float64(n+1))
	}
}

// TestMoves: no tenant moves between partitions that stay, whatever it is called and however
// many are added or removed; a pin moves nobody else.
func TestMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tenant, pinned := rapid.String().Draw(t, "tenant"), rapid.String().Draw(t, "pinned")
		few := rapid.IntRange(1, MaxPartitions).Draw(t, "few")
		many := rapid.IntRange(few, MaxPartitions).Draw(t, "many")
		was, is := Layout{Queue: "q", N: few}.Of(tenant), Layout{Queue: "q", N: many}.Of(tenant)
		if was < 1 || was > few || is != was && is <= few {
			t.Fatalf("%q is in %d of %d and in %d of %d", tenant, was, few, is, many)
		}
		pins := Layout{Queue: "q", N: many, Pins: map[string]int{pinned: many}}
		if tenant != pinned && pins.Of(tenant) != is {
			t.Fatalf("a pin of %q moves %q", pinned, tenant)
		}
	})
}

// TestNames: a partition's name is that of no queue but the first's, goes into a key as it is,
// and can be taken apart.
func TestNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Layout{Queue: rapid.StringMatching(`[A-Za-z0-9._-]{1,64}`).Draw(t, "queue"), N: MaxPartitions}
		i := rapid.IntRange(1, MaxPartitions).Draw(t, "partition")
		name := l.Name(i)
		if valid := check.QueuePattern.MatchString(name); valid != (i == 1) || i == 1 && name != l.Queue {
			t.Fatalf("partition %d of %q is %q", i, l.Queue, name)
		}
		if rediskey.Escape(name) != name || strings.ContainsAny(name, "{}") {
			t.Fatalf("%q is not safe in a key", name)
		}
		if queue, j, ok := Split(name); !ok || queue != l.Queue || j != i {
			t.Fatalf("Split(%q) = %q, %d, %v", name, queue, j, ok)
		}
	})
	for _, name := range []string{"", "@2", "q@", "q@1", "q@0", "q@02", "q@+2", "q@65", "q@2@2", "q q@2"} {
		if queue, i, ok := Split(name); ok {
			t.Errorf("Split(%q) = %q, %d", name, queue, i)
		}
	}
}

func TestCheck(t *testing.T) {
	for want, l := range map[string]Layout{
		"":                             {Queue: "q", N: 3, Pins: map[string]int{"acme": 3}},
		`queue "q@2" is not`:           {Queue: "q@2", N: 3},
		"partitions: 65 must be":       {Queue: "q", N: 65},
		`partition 4 of tenant "acme"`: {Queue: "q", N: 3, Pins: map[string]int{"acme": 4}},
	} {
		err := l.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", l, err, want)
		}
	}
}
