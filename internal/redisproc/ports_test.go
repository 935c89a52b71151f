package redisproc

import "testing"

// TestPorts: no port is handed out twice, and none that another process has claimed, also
// while nothing listens there.
func TestPorts(t *testing.T) {
	given := map[int]int{}
	processes := make([]portBlocks, 3)
	for i := range processes {
		t.Cleanup(func() {
			for _, claim := range processes[i].claims {
				_ = claim.Close()
			}
		})
	}
	for range 3 * blockSize {
		for i := range processes {
			port, err := processes[i].free()
			if err != nil {
				t.Fatal(err)
			}
			if port < lowPort || port >= highPort {
				t.Fatalf("port %d", port)
			}
			if other, twice := given[port]; twice {
				t.Fatalf("port %d for process %d and process %d", port, i, other)
			}
			given[port] = i
		}
	}
}
