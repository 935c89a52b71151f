package mover_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/seats"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// share gives the queue q two partitions that share a quota, and a ledger of it, and then publishes limits with one.
func share(t *testing.T, client redis.UniversalClient) partition.Layout {
	t.Helper()
	publish := func(n int) partition.Layout {
		t.Helper()
		return published(t, client, limits.Set{Queues: map[string]limits.Queue{"q": {Partitions: n, Limits: []limits.Limit{
			{Name: "day", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 600, Period: 24 * time.Hour}},
		}}}})
	}
	publish(2)
	spec := limitlua.Spec{Algorithm: "fw", Permit: 1, Burst: 600, Window: (24 * time.Hour).Microseconds()}
	text, err := json.Marshal(store.Ledgers{Of: map[string]*store.Ledger{"day": {Spec: spec, Ledger: partition.NewLedger(spec)}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledger(client).Store(t.Context(), 1, string(text)); err != nil {
		t.Fatal(err)
	}
	l := publish(1)
	if l.From == nil {
		t.Fatalf("no tenants move: %+v", l)
	}
	return l
}

func ledger(client redis.UniversalClient) *seats.Register {
	return seats.New(client, "test", "q", store.Key("q", "ledger"))
}

// atTheEnd does something to the transaction that ends a change, and to the requests after it.
type atTheEnd struct {
	transaction func(send func() error) error
	request     func(send func() error) error
	over        bool
}

func (a *atTheEnd) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *atTheEnd) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !a.over {
			return next(ctx, cmd)
		}
		err := a.request(func() error { return next(ctx, cmd) })
		cmd.SetErr(err)
		return err
	}
}

func (a *atTheEnd) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		send := func() error { return next(ctx, cmds) }
		switch {
		case a.over:
			return a.request(send)
		case cmds[0].Name() == "multi" && slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Name() == "del" }):
			a.over = true
			return a.transaction(send)
		}
		return send()
	}
}

// TestLedgerOfAWholeQueue: when a queue has one partition again, its ledger is empty, also if the worker that ended the
// change was stopped or got an error before it could see to that.
func TestLedgerOfAWholeQueue(t *testing.T) {
	t.Parallel()
	errAway := errors.New("redis is away")
	pass := func(send func() error) error { return send() }
	refuse := func(func() error) error { return errAway }
	once := func() func(send func() error) error {
		first := true
		return func(send func() error) error {
			if first {
				first = false
				return errAway
			}
			return send()
		}
	}
	for name, c := range map[string]struct {
		request         func(send func() error) error
		ends, lostReply bool // the context, in the transaction; the reply to it
		second          bool // another worker comes after it
	}{
		"no fault":                {request: pass},
		"a request fails":         {request: once()},
		"the session ends":        {request: pass, ends: true},
		"the reply is lost":       {request: pass, lostReply: true},
		"it ends without a reply": {request: pass, ends: true, lostReply: true},
		"the worker is killed":    {request: refuse, ends: true, second: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := server.Client()
			l := share(t, client)
			ctx, end := context.WithTimeout(t.Context(), 20*time.Second)
			defer end()
			move(ctx, l, "one", clientOf(t, server, &atTheEnd{request: c.request, transaction: func(send func() error) error {
				err := send()
				if c.ends {
					end()
				}
				if c.lostReply {
					err = errAway
				}
				return err
			}}))
			if now, err := store.ReadLayout(t.Context(), client, "q"); err != nil || !now.Whole() {
				t.Fatalf("the change has not ended: %+v, %v", now, err)
			}
			if c.second {
				move(t.Context(), l, "two", client)
			}
			if text, _, err := ledger(client).Read(t.Context()); err != nil || text != `{"limits":{}}` {
				t.Errorf("the ledger is %q, %v", text, err)
			}
		})
	}
}
