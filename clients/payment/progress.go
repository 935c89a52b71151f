package payment

import (
	"context"
	"net/http"
	"sync"

	"github.com/headgate/headgate/clients"
)

// progress tracks how far a call got, and its answer.
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
