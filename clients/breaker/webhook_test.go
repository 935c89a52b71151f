package breaker_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/breaker"
	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/clients/webhook"
)

// In front of a real client: hosts that refuse, that answer nothing, that are
// over their limits and that know no such thing.
func TestInFrontOfWebhooks(t *testing.T) {
	sender := webhook.New(webhook.Config{AllowPrivate: true})
	defer sender.Close()
	b := newBreaker(t, breaker.Config{Failures: 3, Pause: time.Hour, Hold: breaker.HoldJob})
	send := breaker.Guard(b, func(_ clients.Call, r webhook.Request) string { return r.Host() }, sender.Send)

	provider := func(config sandbox.Config) *sandbox.HTTP {
		p, err := sandbox.NewHTTP(config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refusing := "http://" + listener.Addr().String()
	listener.Close()
	silent := provider(sandbox.Config{})
	silent.Drop(100)
	busy := provider(sandbox.Config{Limit: sandbox.Limit{Rate: 0.001, Burst: 1}})
	picky := provider(sandbox.Config{})
	picky.Fail(100, 404)
	failing := provider(sandbox.Config{})
	failing.Fail(100, 500)

	for url, want := range map[string]breaker.State{
		refusing: breaker.Open, silent.URL(): breaker.Open, failing.URL(): breaker.Open,
		busy.URL(): breaker.Closed, picky.URL(): breaker.Closed,
	} {
		request := webhook.Request{URL: url}
		for range 10 {
			err = send(t.Context(), clients.Call{Job: "1"}, request)
		}
		if got := b.State(request.Host()); got != want {
			t.Errorf("%s; want %s: %v", got, want, err)
		}
		parked, is := errors.AsType[*clients.ParkedError](err)
		if is != (want == breaker.Open) || is && time.Until(parked.ParkUntil()) < 59*time.Minute {
			t.Errorf("%s: %v", want, err)
		}
	}
	for name, p := range map[string]*sandbox.HTTP{"silent": silent, "failing": failing} {
		if got := len(p.Calls()); got != 3 {
			t.Errorf("%s was called %d times", name, got)
		}
	}
	if got, want := b.Stats(), (breaker.Stats{Open: 3, Opened: 3, Refused: 21}); got != want {
		t.Errorf("%+v; want %+v", got, want)
	}
}
