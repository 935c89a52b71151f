package worker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/limitsfile"
	"github.com/headgate/headgate/queue/operate"
)

func parsed(t *testing.T, text string) limits.Set {
	t.Helper()
	set, err := limitsfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestLimitsFileDrift: a program says once that others have published limits that differ from its file,
// who did so and in what they differ, until the limits of its file are in effect again.
func TestLimitsFileDrift(t *testing.T) {
	const slow = "queues: {q: {kinds: [call], limits: [{name: tenant, per: [tenant], algorithm: token_bucket, rate: 10/s, burst: 1}]}}"
	fast := strings.Replace(slow, "10/s", "20/s", 1)
	client := redistest.Start(t).Client()
	own := fileLimits{publish: func(ctx context.Context, set limits.Set, lost bool) error {
		if lost {
			return operate.Republish(ctx, client, set, operate.Operator{Reason: "limits file a.yaml"})
		}
		return operate.PublishBy(ctx, client, set, operate.Operator{Reason: "limits file a.yaml"})
	}}
	var logged strings.Builder
	d := &drift{redis: client, wanted: own.inEffect, restore: own.restore, logger: slog.New(slog.NewTextHandler(&logged, nil))}
	check := func(when string, lines int, want ...string) {
		t.Helper()
		logged.Reset()
		for range 2 { // the second time has nothing new to log
			if err := d.check(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := strings.Count(logged.String(), "\n"); n != lines {
			t.Errorf("%s: %d lines logged; want %d: %s", when, n, lines, logged.String())
		}
		if len(want) == 0 && d.Err() != nil {
			t.Errorf("%s: %v; want the file in effect", when, d.Err())
		}
		for _, text := range want {
			if d.Err() == nil || !strings.Contains(d.Err().Error(), text) {
				t.Errorf("%s: %v lacks %q", when, d.Err(), text)
			}
		}
	}
	put := func(text string) {
		t.Helper()
		if err := own.put(t.Context(), parsed(t, text)); err != nil {
			t.Fatal(err)
		}
	}
	publish := func(client redis.UniversalClient, text string) {
		t.Helper()
		if err := operate.PublishBy(t.Context(), client, parsed(t, text), operate.Operator{Actor: "ann", Reason: "b.yaml: launch"}); err != nil {
			t.Fatal(err)
		}
	}

	put(slow)
	check("at the start", 0)
	publish(client, fast)
	check("after another publication", 1, "queue q: ann published other limits at ", "(b.yaml: launch)", "which differ in tenant")
	put(fast) // publishes nothing: these limits are in effect already
	check("after the file was changed to the limits in effect", 1)
	publish(client, slow)
	check("after a second publication", 1, "ann published other limits")
	publish(client, fast)
	check("after the limits of the file were published again", 1)
	publish(client, strings.Replace(slow, "{q:", "{other:", 1))
	check("after a queue was published that the file lacks", 0)

	wanted := d.wanted
	d.wanted = func() (limits.Set, int) {
		defer func() { d.wanted = wanted; put(slow) }() // the file changes during a check
		return wanted()
	}
	publish(client, strings.Replace(fast, "burst: 1", "burst: 2", 1))
	check("after the file has changed during a check", 0)
}

// TestGoneLimits: limits of the file that are gone from Redis are published again, and start empty;
// those of other queues stay as they are.
func TestGoneLimits(t *testing.T) {
	const text = "queues: {q: {kinds: [call]}, other: {kinds: [mail]}}"
	client := redistest.Start(t).Client()
	var lost []bool
	own := fileLimits{publish: func(ctx context.Context, set limits.Set, gone bool) error {
		lost = append(lost, gone)
		return operate.Republish(ctx, client, set, operate.Operator{})
	}}
	var logged strings.Builder
	d := &drift{redis: client, wanted: own.inEffect, restore: own.restore, logger: slog.New(slog.NewTextHandler(&logged, nil))}
	if err := own.put(t.Context(), parsed(t, text)); err != nil {
		t.Fatal(err)
	}
	epoch := func(queue string) string {
		return client.HGet(t.Context(), "headgate:{"+queue+"}:limits", "epoch").Val()
	}
	if err := operate.Publish(t.Context(), client, parsed(t, "queues: {other: {kinds: [mail, sms], max_backlog: 7}}")); err != nil {
		t.Fatal(err)
	}
	ofOther := func() string {
		return fmt.Sprint(client.HGetAll(t.Context(), "headgate:{other}:limits").Val(), client.HGetAll(t.Context(), "headgate:{asynq:queues}:routes").Val())
	}
	before := ofOther()
	if err := client.Del(t.Context(), "headgate:{q}:limits", "headgate:{q}:totals").Err(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := d.check(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(lost, []bool{false, true}) || d.Err() == nil || !strings.Contains(d.Err().Error(), "queue other: ") || strings.Contains(d.Err().Error(), "queue q: ") || !strings.Contains(logged.String(), "the limits in Redis are gone") {
		t.Errorf("published with %v; want once more, as lost; %v; logged %s", lost, d.Err(), logged.String())
	}
	var born, empty int64
	if _, err := fmt.Sscan(epoch("q"), &born, &empty); err != nil || empty != born || born == 0 {
		t.Errorf("the epoch of q is %q; want its buckets empty since then", epoch("q"))
	}
	// What an operator published for the other queue stays.
	if after := ofOther(); after != before {
		t.Errorf("the limits of the other queue changed from %s to %s", before, after)
	}
}

// TestLimitsOfAnEarlierBuild: it publishes the same limits without their epoch, so that workers that
// knew them let nothing go. They get an epoch again.
func TestLimitsOfAnEarlierBuild(t *testing.T) {
	client := redistest.Start(t).Client()
	own := fileLimits{publish: func(ctx context.Context, set limits.Set, gone bool) error {
		if gone {
			return operate.Republish(ctx, client, set, operate.Operator{})
		}
		return operate.Publish(ctx, client, set)
	}}
	d := &drift{redis: client, wanted: own.inEffect, restore: own.restore, logger: slog.New(slog.DiscardHandler)}
	if err := own.put(t.Context(), parsed(t, "queues: {q: {kinds: [call]}}")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := d.check(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.HDel(t.Context(), "headgate:{q}:limits", "epoch").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.HIncrBy(t.Context(), "headgate:{q}:totals", "limits", 1).Err(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := d.check(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if client.HGet(t.Context(), "headgate:{q}:limits", "epoch").Val() == "" || d.Err() != nil {
		t.Errorf("the limits have no epoch; %v", d.Err())
	}
}
