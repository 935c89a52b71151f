package seats

import (
	"fmt"

	"github.com/redis/go-redis/v9"
)

const (
	slots = 16384 // of a Cluster

	// candidates is of how many names the best is taken: the slots of 512 lie 32 apart, far closer than nodes.
	candidates = 512
)

// Tags returns the hash tags of the seats of a queue: its own, and on a Cluster two more, whose slots lie a third and
// two thirds of all slots behind its own. Where three nodes or more have equal parts of the slots, they are on different
// ones, but for one of 250 names, with a slot at the edge of a node's.
func Tags(client redis.UniversalClient, queue string) []string {
	tags := []string{queue}
	if _, cluster := client.(*redis.ClusterClient); !cluster {
		return tags
	}
	for third := 1; third <= 2; third++ {
		want, best, nearest := (slot(queue)+(third*slots+2)/3)%slots, "", slots
		for i := range candidates {
			tag := fmt.Sprintf("%s~%d", queue, i) // no queue has such a name
			ahead := (slot(tag) - want + slots) % slots
			if away := min(ahead, slots-ahead); away < nearest {
				best, nearest = tag, away
			}
		}
		tags = append(tags, best)
	}
	return tags
}

// slot returns the slot of a hash tag: its CRC16 in the variant of XMODEM, as Redis's specification of Clusters has it.
func slot(tag string) int {
	sum := uint16(0)
	for i := range len(tag) {
		sum ^= uint16(tag[i]) << 8
		for range 8 {
			if sum&0x8000 != 0 {
				sum = sum<<1 ^ 0x1021
			} else {
				sum <<= 1
			}
		}
	}
	return int(sum) % slots
}
