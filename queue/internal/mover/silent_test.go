package mover_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/mover"
	"github.com/headgate/headgate/queue/internal/seats"
	"github.com/headgate/headgate/queue/internal/store"
)

// TestUnshareBesideASilentSeat: a queue gets one partition again while its calls use a shared limit all the time and one
// seat of the ledger does not answer.
func TestUnshareBesideASilentSeat(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	client := cluster.Client()
	l := share(t, client)
	ctx, end := context.WithTimeout(t.Context(), 20*time.Second)
	defer end()
	uses := make(chan struct{})
	go func() {
		defer close(uses)
		for ctx.Err() == nil {
			client.Set(ctx, store.Key("q", "b:day:"), "no lease", 0)
			time.Sleep(10 * time.Millisecond)
		}
	}()
	other := redisclient.New(cluster.Options())
	defer other.Close()
	key := strings.Replace(store.Key("q", "ledger"), "{q}", fmt.Sprintf("{%s}", seats.Tags(client, "q")[2]), 1)
	other.AddHook(redistest.Silent{Word: key, End: t.Context().Done()})
	var log strings.Builder
	m := mover.Mover{Of: l, Worker: "w", Longest: time.Minute, Redis: other, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	m.Run(ctx)
	end()
	<-uses
	if now, err := store.ReadLayout(t.Context(), client, "q"); err != nil || !now.Whole() {
		t.Errorf("the change has not ended: %+v, %v: %s", now, err, log.String())
	}
}
