package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/workers"
)

// TestWorkerWithoutQueues: a worker that names no queues serves those into which clients
// enqueue the kinds that it handles.
func TestWorkerWithoutQueues(t *testing.T) {
	t.Parallel()
	type letter struct{}
	tests := map[string]struct {
		limits map[string]limits.Queue
		kinds  []string
		want   []string
	}{
		"without limits":        {nil, []string{"email", "sms"}, []string{"email", "sms"}},
		"limits list a kind":    {map[string]limits.Queue{"provider": {Kinds: []string{"email", "sms"}}}, []string{"email", "sms"}, []string{"provider"}},
		"limits list another":   {map[string]limits.Queue{"email": {Kinds: []string{"sms"}}, "sms": {Kinds: []string{"email"}}}, []string{"email"}, []string{"sms"}},
		"a name of limits only": {map[string]limits.Queue{"provider": {Kinds: []string{"a:b"}}}, []string{"a:b"}, []string{"provider"}},
	}
	for what, test := range tests {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			if test.limits != nil {
				if err := operate.Publish(t.Context(), server.Client(), limits.Set{Queues: test.limits}); err != nil {
					t.Fatal(err)
				}
			}
			worker := newWorker(t, Config{Redis: server.Options()})
			called := make(chan string, len(test.kinds))
			for _, kind := range test.kinds {
				Handle(worker, Kind[letter](kind), func(ctx context.Context, _ letter) error {
					job, _ := Current(ctx)
					called <- job.Queue
					return nil
				})
			}
			client := NewClient(server.Client())
			for _, kind := range test.kinds {
				if _, err := client.Enqueue(t.Context(), Job{Kind: kind, Tenant: "a", Payload: letter{}}); err != nil {
					t.Fatal(err)
				}
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- worker.Run(ctx) }()
			var queues []string
			for range test.kinds {
				select {
				case queue := <-called:
					queues = append(queues, queue)
				case err := <-ended:
					t.Fatalf("the worker ended: %v", err)
				case <-time.After(time.Minute):
					t.Fatalf("jobs of %v were called only", queues)
				}
			}
			if queues = slices.Compact(slices.Sorted(slices.Values(queues))); !slices.Equal(queues, test.want) {
				t.Errorf("jobs of the queues %v were called, want %v", queues, test.want)
			}
			list, err := workers.List(t.Context(), server.Client())
			if err != nil || len(list) != 1 || !slices.Equal(list[0].Queues, test.want) {
				t.Errorf("the worker is listed as %+v, %v at its first calls; want the queues %v", list, err, test.want)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	for what, test := range map[string]struct {
		kinds []string
		want  string
	}{
		"no queue has the kind": {[]string{"a:b"}, `queue: no queue has the kind "a:b": list it in the limits of a queue, or set Config.Queues`},
		"eleven queues":         {strings.Fields("a b c d e f g h i j k"), "queue: the kinds with handlers wait in 11 queues; a worker serves at most 10: set Config.Queues, and run several workers"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			worker := newWorker(t, Config{Redis: redistest.Start(t).Options()})
			for _, kind := range test.kinds {
				Handle(worker, Kind[letter](kind), func(context.Context, letter) error { return nil })
			}
			if err := worker.Run(t.Context()); fmt.Sprint(err) != test.want {
				t.Errorf("%v; want %s", err, test.want)
			}
		})
	}
}

// TestRefusalsAreNew: a job is not refused for what a publication that had ended before has changed, however little
// before that another was refused.
func TestRefusalsAreNew(t *testing.T) {
	t.Parallel()
	server := redistest.Any(t)
	client := NewClient(server.Client()).RequireLimits()
	set := limits.Set{Queues: map[string]limits.Queue{}}
	for i := range 20 {
		name := fmt.Sprint("queue-", i)
		named := Job{Kind: "kind-" + name, Queue: name, Tenant: "a", Payload: i}
		unnamed := Job{Kind: "kind-" + name, Tenant: "a", Payload: i}
		for _, job := range []Job{named, unnamed} {
			if _, err := client.Enqueue(t.Context(), job); err == nil {
				t.Fatalf("%s was accepted before its limits were published", job.Kind)
			}
		}
		set.Queues[name] = limits.Queue{Kinds: []string{named.Kind}}
		if err := operate.Publish(t.Context(), server.Client(), set); err != nil {
			t.Fatal(err)
		}
		for _, job := range []Job{named, unnamed} {
			if _, err := client.Enqueue(t.Context(), job); err != nil {
				t.Errorf("kind %s, queue %q: %v", job.Kind, job.Queue, err)
			}
		}
	}
}
