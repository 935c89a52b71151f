package main

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/clients/sandbox"
)

// unshaped is a tenant that calls the receiver of webhooks itself, past the queue
// and as fast as it likes: what the others would look like without limits. It is
// off until somebody turns it on.
type unshaped struct {
	web *sandbox.HTTP
	on  atomic.Bool
}

const (
	unshapedTenant = "unshaped"
	unshapedWants  = 60 // calls a second,
	unshapedMay    = 10 // of which so many are accepted
)

func newUnshaped(web *sandbox.HTTP) *unshaped {
	web.SetLimit(unshapedTenant, sandbox.Limit{Rate: unshapedMay, Burst: 1})
	return &unshaped{web: web}
}

// Unshaped is part of api.Demo.
func (u *unshaped) Unshaped() (on bool, tenant string, sent, rejected int64) {
	stats := u.web.Stats()[unshapedTenant]
	return u.on.Load(), unshapedTenant, int64(stats.Accepted), int64(stats.Rejected)
}

// SetUnshaped is part of api.Demo.
func (u *unshaped) SetUnshaped(on bool) { u.on.Store(on) }

// run makes the calls until ctx is done.
func (u *unshaped) run(ctx context.Context) error {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(time.Second / unshapedWants)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !u.on.Load() {
			continue
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.web.URL()+"/"+unshapedTenant, nil)
		if err != nil {
			return err
		}
		request.Header.Set("Headgate-Tenant", unshapedTenant)
		if response, err := client.Do(request); err == nil { // what came of it the receiver counts
			response.Body.Close()
		}
	}
}
