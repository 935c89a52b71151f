package redisproc

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports of servers are below the range that systems hand out by themselves. A node of a
// Cluster also has the port that is 10,000 higher.
const lowPort, highPort = 12000, 22000

// blockSize is how many ports a process claims at once.
const blockSize = 100

// FreePort returns a port for a server. No other process that asks here gets it as long as this one runs.
func FreePort() (int, error) { return ports.free() }

// ports are those of this process.
var ports portBlocks

// portBlocks hands out each port once. A server that is down keeps its port, because clients go
// on dialling it: the server of another process there would get their commands, and a worker
// among them would take its jobs. So a process claims blocks of ports, and holds them until it
// ends.
type portBlocks struct {
	mu        sync.Mutex
	claims    []net.Listener // on the first port of each block
	next, end int
}

func (p *portBlocks) free() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for p.next < p.end {
			port := p.next
			p.next++
			if listener, err := listen(port); err == nil {
				return port, listener.Close()
			}
		}
		if err := p.claim(); err != nil {
			return 0, err
		}
	}
}

func (p *portBlocks) claim() (err error) {
	for _, i := range rand.Perm((highPort - lowPort) / blockSize) {
		first := lowPort + i*blockSize
		var listener net.Listener
		if listener, err = listen(first); err == nil {
			p.claims, p.next, p.end = append(p.claims, listener), first+1, first+blockSize
			return nil
		}
	}
	return fmt.Errorf("no block of free ports from %d to %d: %w", lowPort, highPort, err)
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
}
