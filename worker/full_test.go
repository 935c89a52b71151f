package worker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/limitsfile"
	"github.com/headgate/headgate/queue/operate"
)

// TestStartOnFullRedis: a program starts on a full Redis and drains it under the limits that are
// there. It puts its own in effect, and sets its periodic jobs, once there is memory.
func TestStartOnFullRedis(t *testing.T) {
	redistest.Slow(t)
	server := redistest.Start(t)
	client, ctx := server.Client(), t.Context()
	const limits = "queues: {greetings: {kinds: [greet, tick], limits: [{name: tenant, per: [tenant], algorithm: token_bucket, rate: 10/s, burst: 1}]}}"
	before, err := limitsfile.Parse([]byte(limits))
	if err != nil {
		t.Fatal(err)
	}
	if err := operate.Publish(ctx, client, before); err != nil {
		t.Fatal(err)
	}
	after, err := limitsfile.Parse([]byte(strings.Replace(limits, "10/s", "20/s", 1)))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(file, []byte(strings.Replace(limits, "10/s", "20/s", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	job := queue.Job{Kind: "greet", Queue: "greetings", Tenant: "a", Payload: 1}
	if _, err := queue.NewClient(client).Enqueue(ctx, job); err != nil {
		t.Fatal(err)
	}
	server.FillMemory()

	running, stop := context.WithCancel(ctx)
	called, ended := make(chan struct{}, 10), make(chan error, 1)
	settings := Settings{RedisURL: server.URL(), LimitsFile: file, Concurrency: 10, LogFormat: "text", ShutdownTimeout: time.Second}
	settings.HTTPAddr, settings.RedisFullAt = "127.0.0.1:0", 75
	go func() {
		ended <- Run(running, settings, func(_ context.Context, p *Program) error {
			queue.Handle(p.Worker, "greet", func(context.Context, any) error {
				called <- struct{}{}
				return nil
			})
			p.Periodic(queue.Periodic{ID: "tick", Spec: "@hourly", Zone: "UTC", Job: queue.Job{Kind: "tick", Tenant: "a"}})
			return nil
		})
	}()
	select {
	case <-called:
	case err := <-ended:
		t.Fatalf("it ended: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("nothing is called")
	}
	if all, err := operate.Compare(ctx, client, before); err != nil || !all[0].Equal() {
		t.Errorf("the limits changed in a full Redis: %+v, %v", all, err)
	}
	if err := client.ConfigSet(ctx, "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		all, err := operate.Compare(ctx, client, after)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := queue.NewClient(client).ListPeriodic(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if all[0].Equal() && len(entries) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("with memory: limits %+v, %d periodic jobs", all[0], len(entries))
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestPeriodicJobThatCannotBeSet: why a periodic job is not set is in the log, once, unless Redis is still full.
func TestPeriodicJobThatCannotBeSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var log bytes.Buffer
		full, refused := errors.New("OOM command not allowed"), errors.New("no queue serves it")
		answers := []error{full, refused, refused, nil}
		ended := make(chan error)
		go func() {
			ended <- setLater(ctx, slog.New(slog.NewTextHandler(&log, nil)), "tick", func(context.Context) error {
				err := answers[0]
				answers = answers[1:]
				return err
			})
		}()
		time.Sleep(10 * driftEvery)
		synctest.Wait()
		if text := log.String(); len(answers) > 0 || strings.Count(text, "\n") != 1 || !strings.Contains(text, "periodic=tick error=\"no queue serves it\"") {
			t.Errorf("%d answers are left; log: %s", len(answers), text)
		}
		select {
		case err := <-ended:
			t.Errorf("it returned before the program ends: %v", err)
		default:
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
