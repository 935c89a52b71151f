package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/dashboard/metrics"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/limitsfile"
	"github.com/headgate/headgate/queue/workers"
)

// readDetails reads what a page would be shown, and fails where a worker could
// not tell it.
func readDetails(t *testing.T, details *Details) (api.WorkerDetails, string) {
	t.Helper()
	text, err := json.Marshal(details.Read())
	if err != nil || len(text) > workers.MaxDetails {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	read, err := api.ReadWorkerDetails(workers.Info{ID: "w", Details: text})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(any(read), details.Read()) {
		t.Errorf("%+v came back as %+v", details.Read(), read)
	}
	return read, string(text)
}

// TestDetailsAreBounded: however many accounts there are, whatever they are called, the
// details stay such as a worker can tell.
func TestDetailsAreBounded(t *testing.T) {
	details := NewDetails(metrics.New(prometheus.NewRegistry()))
	for _, kind := range []string{"webhook", "email", "ai", "payment"} {
		details.AddProvider(kind, nil)
		details.AddQuotas(kind, func() (all []api.Quota) {
			for range 100 {
				all = append(all, api.Quota{Account: strings.Repeat("a", 64), Name: "requests", Limit: 1})
			}
			return all
		})
	}
	read, _ := readDetails(t, details)
	for _, p := range read.Providers {
		if len(p.Quotas) < 5 {
			t.Errorf("%+v", p)
		}
	}
}

// TestDetailsOfManyProviders: details that cannot be cut any further are returned as they are, and at once.
func TestDetailsOfManyProviders(t *testing.T) {
	details := NewDetails(metrics.New(prometheus.NewRegistry()))
	for i := range 500 {
		details.AddProvider(fmt.Sprint("kind", i), nil)
	}
	if all := details.Read().(api.WorkerDetails); len(all.Providers) != 500 {
		t.Errorf("%d providers", len(all.Providers))
	}
}

// TestDetailsOfTheLimitsFile: an operator sees why the file is not in force.
func TestDetailsOfTheLimitsFile(t *testing.T) {
	details := NewDetails(metrics.New(prometheus.NewRegistry()))
	if read, _ := readDetails(t, details); read.LimitsFile != nil {
		t.Errorf("without a file: %+v", read.LimitsFile)
	}
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("queues: {q: {kinds: [call]}}")
	ctx, cancel := context.WithCancel(t.Context())
	taken, refused := make(chan struct{}, 10), make(chan struct{}, 10)
	watcher := limitsfile.NewWatcher(path, slog.New(slog.NewTextHandler(lines(refused), nil)), func(context.Context, limits.Set) error {
		taken <- struct{}{}
		return nil
	})
	others := &drift{logger: slog.New(slog.DiscardHandler)}
	details.limitsFile(path, watcher, others)
	if read, _ := readDetails(t, details); !read.LimitsFile.At.IsZero() || read.LimitsFile.Path != path || read.LimitsFile.Error != "" {
		t.Errorf("before it was read: %+v", read.LimitsFile)
	}
	ended := make(chan error, 1)
	go func() { ended <- watcher.Run(ctx) }()
	<-taken
	<-refused // the line that it is in force
	first, _ := readDetails(t, details)
	if first.LimitsFile.At.IsZero() || first.LimitsFile.Error != "" {
		t.Errorf("in force: %+v", first.LimitsFile)
	}
	write("queues: {q: {kidns: [call]}}")
	<-refused
	if read, _ := readDetails(t, details); !strings.Contains(read.LimitsFile.Error, `did you mean "kinds"?`) || !read.LimitsFile.At.After(first.LimitsFile.At) {
		t.Errorf("with a mistake: %+v", read.LimitsFile)
	}
	write("queues: {q: {kinds: [call]}}")
	<-taken
	<-refused
	others.set("queue q: ann published other limits")
	if read, _ := readDetails(t, details); read.LimitsFile.Error != "queue q: ann published other limits" {
		t.Errorf("with other limits in effect: %+v", read.LimitsFile)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// lines tells of every line that is written to it.
type lines chan struct{}

func (l lines) Write(p []byte) (int, error) {
	l <- struct{}{}
	return len(p), nil
}
