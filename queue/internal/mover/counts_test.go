package mover_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/conformance"
	"github.com/headgate/headgate/queue/internal/mover"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// counts returns what the partitions of a queue have counted together.
func counts(t *testing.T, client redis.UniversalClient, l partition.Layout) map[string]int64 {
	t.Helper()
	sum := map[string]int64{}
	for _, home := range l.Names() {
		all := client.HGetAll(t.Context(), store.Key(home, "totals")).Val()
		for _, name := range []string{"processed", "failed"} {
			all[name] = client.Get(t.Context(), asynqwire.Key(home, name)).Val()
		}
		for name, text := range all {
			n, _ := strconv.ParseInt(text, 10, 64)
			if name != "limits" && name != "pauses" { // numbers of changes
				sum[name] += n
			}
		}
	}
	return sum
}

// TestCountsOfPartitionsThatEnd: what a queue has counted is not less and not more when partitions of it end, also if
// the worker that removes them is killed in between.
func TestCountsOfPartitionsThatEnd(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	fill(t, server, 3)
	client.HSet(ctx, store.Key("q@2", "totals"), "direct", 7)
	was := counts(t, client, partition.Layout{Queue: "q", N: 3})
	l := published(t, client, setOf(1))
	running, end := context.WithCancel(ctx)
	removes := func(words []any) bool {
		return slices.Contains(words, any(store.UnregisterScript.Hash())) && slices.Contains(words, any("q@3")) && slices.Contains(words, any(true))
	}
	for i, hook := range []redis.Hook{&killed{dies: removes, end: end}, nil} {
		move(running, l, fmt.Sprint("w", i), clientOf(t, server, hook))
		running = ctx
		client.Del(ctx, store.Key("q", "mover"))
	}
	if now, err := store.ReadLayout(ctx, client, "q"); err != nil || !now.Whole() {
		t.Fatalf("the change has not ended: %+v, %v", now, err)
	}
	if is := counts(t, client, partition.Layout{Queue: "q", N: 1}); !maps.Equal(was, is) || is["enqueued"] < 8*tenants || is["processed"] == 0 {
		t.Errorf("counts were %v, and are %v", was, is)
	}
}

// TestCallsOfAPartitionThatEnds: a queue counts the calls of which it learned just before their partition ended.
func TestCallsOfAPartitionThatEnds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	publish := func(n int) partition.Layout {
		return published(t, client, limits.Set{Queues: map[string]limits.Queue{"q": {Partitions: n, Conformance: true, Limits: []limits.Limit{
			{Name: "tenant", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 10, Period: 1000 * time.Hour}, Per: []string{"tenant"}},
		}}}})
	}
	two := publish(2)
	who := "t"
	for two.Home(who) != "q@2" {
		who += "t"
	}
	call := func() {
		t.Helper()
		run := fmt.Sprintf("done ok 1 %d 10 0 0 1  ", time.Now().UnixMicro())
		values := []string{"1", strings.Join([]string{"b8b7c7a4-1c7e-4f0e-9d57-6f2f3c0a7b61", "call", who, run}, "\t")}
		if err := client.XAdd(ctx, &redis.XAddArgs{Stream: store.Key("q@2", "events"), Values: values}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	auditor := conformance.NewAuditor(two, client) // of a worker that does not know of the change yet
	count := func() {
		t.Helper()
		if err := auditor.Count(ctx); err != nil {
			t.Fatal(err)
		}
	}
	call()
	count()
	call()
	move(ctx, publish(1), "w", client)
	if now, err := store.ReadLayout(ctx, client, "q"); err != nil || !now.Whole() {
		t.Fatalf("the change has not ended: %+v, %v", now, err)
	}
	if kept := client.HKeys(ctx, store.Key("q", "counted")).Val(); slices.Contains(kept, "q@2") || len(kept) == 0 {
		t.Errorf("how far calls are counted is kept of %q; want something, and none of q@2", kept)
	}
	count()
	all := map[string]string{}
	for day := time.Now().UnixMicro()/conformance.Day - 1; len(all) == 0 && day <= time.Now().UnixMicro()/conformance.Day; day++ {
		all = client.HGetAll(ctx, conformance.HoursKey("q", day)).Val()
	}
	if len(all) != 1 {
		t.Fatalf("counted: %q; want the calls of one tenant, and none that is missing", all)
	}
	for bucket, text := range all {
		for _, hour := range conformance.ParseHours(text) {
			if bucket != "tenant:"+who || hour.Most != 2 {
				t.Errorf("%s: %d calls are counted; want 2", bucket, hour.Most)
			}
		}
	}
}

// TestDamagedCountsOfAPartitionThatEnds: what cannot be counted is lost, and the change ends.
func TestDamagedCountsOfAPartitionThatEnds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	publish := func(n int) partition.Layout {
		return published(t, client, limits.Set{Queues: map[string]limits.Queue{"q": {Partitions: n, Conformance: true}}})
	}
	publish(2)
	l := publish(1)
	if l.Whole() {
		t.Fatalf("no partition ends: %+v", l)
	}
	client.Set(ctx, store.Key("q@2", "totals"), "x", 0)
	client.Set(ctx, store.Key("q", "counted"), "x", 0)
	m := mover.Mover{Of: l, Worker: "w", Longest: 5 * time.Second, Redis: client, Logger: slog.New(slog.DiscardHandler)}
	bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	m.Run(bounded)
	if now, err := store.ReadLayout(ctx, client, "q"); err != nil || !now.Whole() {
		t.Errorf("the change has not ended: %+v, %v", now, err)
	}
}
