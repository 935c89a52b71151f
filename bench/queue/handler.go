package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	kind         = "call"
	tenantHeader = "Headgate-Tenant"
)

// payload is that of all jobs.
type payload struct {
	Tenant   string
	Enqueued int64 `json:",omitempty"` // when, in ns since 1970; 0: its latency is not measured
}

// callLog is the handler of all contenders: it makes the call, and notes it.
type callLog struct {
	receiver string
	client   *http.Client

	mu sync.Mutex
	usage
}

func newCallLog(t task) *callLog {
	return &callLog{receiver: t.Receiver, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}}
}

func (l *callLog) handle(ctx context.Context, p payload) error {
	now := time.Now()
	l.mu.Lock()
	l.note(now, 1)
	if p.Enqueued != 0 {
		l.Latency = append(l.Latency, now.Sub(time.Unix(0, p.Enqueued)))
	}
	l.mu.Unlock()
	if l.receiver == "" {
		return nil
	}
	return l.post(ctx, p.Tenant)
}

// note counts calls that were made now. It is called under mu.
func (l *callLog) note(now time.Time, n int) {
	if l.Calls == 0 {
		l.First = now
	}
	l.Last = now
	l.Calls += n
}

func (l *callLog) post(ctx context.Context, tenant string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.receiver, strings.NewReader("{}"))
	if err != nil {
		return err
	}
	request.Header.Set(tenantHeader, tenant)
	response, err := l.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", l.receiver, response.Status)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
