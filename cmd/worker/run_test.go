package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/get"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue"
)

// TestRunEndsWithItsWatcher: changes of the limits file are never missed in silence.
func TestRunEndsWithItsWatcher(t *testing.T) {
	server := redistest.Start(t)
	quietly(t, server.URL(), "queues: {webhook: {kinds: [webhook]}}")
	folder := filepath.Dir(os.Getenv("HEADGATE_LIMITS_FILE"))
	// The file has been read when its limits are on their way to Redis, and then its
	// folder goes away.
	client := server.Client()
	if err := client.Do(t.Context(), "CLIENT", "PAUSE", 60000, "WRITE").Err(); err != nil {
		t.Fatal(err)
	}
	_, ended := started(t, "run")
	until.Done(t, "limits are on their way to Redis", func() bool { return strings.Contains(client.Info(t.Context(), "clients").Val(), "blocked_clients:1") })
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if err := client.Do(t.Context(), "CLIENT", "UNPAUSE").Err(); err != nil {
		t.Fatal(err)
	}
	if errText := endOf(t, ended); !strings.Contains(errText, "watch "+folder) {
		t.Errorf("it ended with %q; want the error of the limits file's watcher", errText)
	}
}

// TestRunDrainsFirst: while the worker finishes its calls, its probes and metrics
// still answer.
func TestRunDrainsFirst(t *testing.T) {
	server := redistest.Start(t)
	addr := quietly(t, server.URL(), "queues: {webhook: {kinds: [webhook]}}")
	called, answer := make(chan struct{}), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(called)
		<-answer
	}))
	defer receiver.Close()
	release := sync.OnceFunc(func() { close(answer) })
	defer release()
	t.Setenv("HEADGATE_WEBHOOK_ALLOW_PRIVATE", "true")
	stop, ended := started(t, "run")
	untilReady(t)
	job := queue.Job{Kind: "webhook", Queue: "webhook", Tenant: "a", Payload: map[string]string{"url": receiver.URL}}
	if _, err := queue.NewClient(server.Client()).Enqueue(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	select {
	case <-called:
	case errText := <-ended:
		t.Fatal(errText)
	}
	stop()
	for status := 0; status != http.StatusServiceUnavailable; {
		response, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			t.Fatalf("the probes ended before the last call: %v", err)
		}
		response.Body.Close()
		status = response.StatusCode
	}
	for _, path := range []string{"livez", "metrics"} {
		get.Text(t, "http://"+addr+"/"+path)
	}
	release()
	if errText := endOf(t, ended); errText != "" {
		t.Error(errText)
	}
	if counts := server.Client().HGet(t.Context(), "headgate:{webhook}:tenants", "a").Val(); counts != "0 1 0 0" {
		t.Errorf("the counts are %s", counts)
	}
}

// started runs a command; the channel gets its error when it has ended, "" for none.
func started(t *testing.T, args ...string) (stop func(), ended <-chan string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	result := make(chan string, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, errText, code := command(ctx, args...)
		if (code == 0) != (errText == "") {
			t.Errorf("exit %d with %q", code, errText)
		}
		result <- errText
	}()
	t.Cleanup(func() { stop(); <-over })
	return stop, result
}

func endOf(t *testing.T, ended <-chan string) string {
	t.Helper()
	select {
	case errText := <-ended:
		return errText
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
		return ""
	}
}

// untilReady waits until the worker's probe answers.
func untilReady(t *testing.T) {
	t.Helper()
	until.Done(t, "the worker is ready", func() bool {
		_, _, code := command(t.Context(), "healthcheck")
		return code == 0
	})
}
