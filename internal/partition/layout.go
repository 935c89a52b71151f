package partition

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/check"
)

// MaxPartitions is the largest number of partitions of a queue.
const MaxPartitions = 64

// Layout says which of a queue's partitions has the jobs of a tenant.
type Layout struct {
	Queue string
	N     int            // partitions: 1 to [MaxPartitions]
	Pins  map[string]int // tenant → its partition, 1 to N, whatever its hash says

	// From is what it was before, until the last tenant has moved. nil: all are where the layout says.
	From *Layout
}

// Check returns an error that names the first invalid value.
func (l Layout) Check() error {
	if !check.QueuePattern.MatchString(l.Queue) {
		return fmt.Errorf("queue %s is not 1 to 64 letters, digits, '.', '_' or '-'", check.Quote(l.Queue))
	}
	if l.N < 1 || l.N > MaxPartitions {
		return fmt.Errorf("partitions: %d must be 1 to %d", l.N, MaxPartitions)
	}
	for tenant, i := range l.Pins {
		if i < 1 || i > l.N {
			return fmt.Errorf("partition %d of tenant %s must be 1 to %d", i, check.Quote(tenant), l.N)
		}
	}
	if l.From != nil {
		return l.From.Check()
	}
	return nil
}

// Of returns the partition of a tenant, 1 to N.
//
// Each pair of a tenant and a partition has a score, and the highest wins (rendezvous
// hashing). Scores do not depend on N. So if a partition is added, only the tenants for which
// it wins move, which are 1/N of all, and they move to it. Nothing is stored.
func (l Layout) Of(tenant string) int {
	if i, pinned := l.Pins[tenant]; pinned {
		return i
	}
	// FNV-1a, written out because it must never change: jobs lie where it said.
	hash := uint64(14695981039346656037)
	for i := range len(tenant) {
		hash = (hash ^ uint64(tenant[i])) * 1099511628211
	}
	best, highest := 1, uint64(0)
	for i := 1; i <= l.N; i++ {
		if score := mix(hash ^ mix(uint64(i))); i == 1 || score > highest {
			best, highest = i, score
		}
	}
	return best
}

// mix makes each bit of its result depend on all bits of x (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// separator is not part of any valid queue name, and Redis keys and hash tags have it
// unescaped.
const separator = "@"

// Name returns the name of the asynq queue of partition i. Partition 1 is the queue itself, so
// that the jobs of a queue without partitions are where they were. The name is also the hash
// tag of its keys, as with any queue.
func (l Layout) Name(i int) string {
	if i == 1 {
		return l.Queue
	}
	return l.Queue + separator + strconv.Itoa(i)
}

// Names returns the names of all partitions, in order; while tenants move, also of those that they leave.
func (l Layout) Names() []string {
	n := l.N
	if l.From != nil {
		n = max(n, l.From.N)
	}
	names := make([]string, n)
	for i := range names {
		names[i] = l.Name(i + 1)
	}
	return names
}

// Equal reports whether two layouts put all tenants into the same partitions, and move them from the same.
func (l Layout) Equal(other Layout) bool {
	if (l.From == nil) != (other.From == nil) || l.From != nil && !l.From.Equal(*other.From) {
		return false
	}
	return l.Queue == other.Queue && l.N == other.N && maps.Equal(l.Pins, other.Pins)
}

// moving is what the sum of a layout begins with while tenants move.
const moving = "~"

// Sum returns a text that differs from that of any other layout of the queue; "" for an undivided queue.
func (l Layout) Sum() string {
	if l.N == 1 && l.From == nil {
		return ""
	}
	sum := fnv.New64a()
	fmt.Fprint(sum, l.N)
	for _, tenant := range slices.Sorted(maps.Keys(l.Pins)) {
		fmt.Fprintf(sum, " %q %d", tenant, l.Pins[tenant])
	}
	if l.From == nil {
		return strconv.FormatUint(sum.Sum64(), 36)
	}
	fmt.Fprint(sum, " from ", l.From.Sum())
	return moving + strconv.FormatUint(sum.Sum64(), 36)
}

// Home returns the name of the partition of a tenant; while it moves, of the one where it will be.
func (l Layout) Home(tenant string) string { return l.Name(l.Of(tenant)) }

// Homes returns the partitions in which a tenant may be, the one that it leaves first. Only while tenants
// move, some have two.
func (l Layout) Homes(tenant string) []string {
	home := l.Home(tenant)
	if l.From != nil {
		if was := l.From.Home(tenant); was != home {
			return []string{was, home}
		}
	}
	return []string{home}
}

// Whole reports whether the queue is undivided, and no tenant moves.
func (l Layout) Whole() bool { return l.N == 1 && l.From == nil }

// QueueOf returns the queue of a partition by its name, and any other name as it is.
func QueueOf(name string) string {
	if !strings.Contains(name, separator) {
		return name
	}
	if queue, _, ok := Split(name); ok {
		return queue
	}
	return name
}

// Split is the reverse of [Layout.Name]. It returns false for a name that no partition has.
func Split(name string) (queue string, i int, ok bool) {
	queue, number, parted := strings.Cut(name, separator)
	if !check.QueuePattern.MatchString(queue) {
		return "", 0, false
	}
	if !parted {
		return queue, 1, true
	}
	i, err := strconv.Atoi(number)
	if err != nil || i < 2 || i > MaxPartitions || strconv.Itoa(i) != number {
		return "", 0, false
	}
	return queue, i, true
}
