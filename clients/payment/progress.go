package payment

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/clients"
)

// progress is how far a call got, and what the answer to it was.
type progress struct {
	clients.Progress

	mu      sync.Mutex
	code    int // 0: no answer came
	headers http.Header
}

type progressKey struct{}

func (p *progress) watch(ctx context.Context) context.Context {
	return p.Watch(context.WithValue(ctx, progressKey{}, p))
}

func (p *progress) answered(response *http.Response) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.code, p.headers = response.StatusCode, response.Header
}

func (p *progress) status() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.code
}

func (p *progress) header(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.headers.Get(name)
}

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: mostDial, KeepAlive: 30 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return clients.Counted(conn), nil
}
