package main

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/operate"
)

// A tenant that goes past the queue is refused by its receiver, and that is not the
// demo's fault. Turned off it makes no call.
func TestUnshaped(t *testing.T) {
	providers, err := startProviders()
	if err != nil {
		t.Fatal(err)
	}
	defer providers.close()
	client := redistest.Start(t).Client()
	if err := operate.Publish(t.Context(), client, demoLimits()); err != nil {
		t.Fatal(err)
	}
	d := newDemo(client, providers, &lateness{}, t.Output())
	d.final = d.uses()
	u := newUnshaped(providers.web)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		u.run(ctx)
	}()
	u.SetUnshaped(true)
	rejected := int64(0)
	for deadline := time.Now().Add(time.Minute); rejected == 0 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		_, _, _, rejected = u.Unshaped() // the receiver tells nobody
	}
	stop()
	<-ended
	if on, tenant, sent, rejected := u.Unshaped(); !on || tenant != unshapedTenant || sent == 0 || rejected == 0 {
		t.Errorf("%v %s: %d sent, %d rejected", on, tenant, sent, rejected)
	}
	if err := d.account(t.Context()); err != nil {
		t.Errorf("the demo: %v", err)
	}
}
