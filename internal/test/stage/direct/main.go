// Command direct makes calls to a webhook receiver that are no jobs, through [queue.Transport], so that they
// share the limits of the queue "webhook" with its jobs. It runs until its input ends.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "direct: "+err.Error())
		os.Exit(1)
	}
}

func run() error {
	url := flag.String("redis", "", "URL of Redis")
	target := flag.String("target", "", "URL of the receiver")
	callers := flag.Int("callers", 1, "how many calls wait at once")
	every := flag.Duration("every", 0, "how often each caller calls; 0: as often as its calls go")
	flag.Parse()
	options, err := queue.ParseRedisURL(*url)
	if err != nil {
		return err
	}
	client := redis.NewUniversalClient(options)
	defer client.Close()
	http := &http.Client{Transport: &queue.Transport{
		Client:  queue.NewClient(client),
		Job:     func(*http.Request) (queue.Job, error) { return queue.Job{Kind: "webhook", Tenant: "direct"}, nil },
		MaxWait: time.Minute,
	}}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	var made atomic.Int64
	var failed error
	var once sync.Once
	var all sync.WaitGroup
	for range *callers {
		all.Go(func() {
			next := time.Now()
			for ctx.Err() == nil {
				if err := call(ctx, http, *target, fmt.Sprintf("direct-%d-%d", os.Getpid(), made.Add(1))); err != nil && ctx.Err() == nil {
					once.Do(func() { failed = err })
					stop()
				}
				next = next.Add(*every)
				select {
				case <-ctx.Done():
				case <-time.After(time.Until(next)):
				}
			}
		})
	}
	all.Wait()
	return failed
}

func call(ctx context.Context, client *http.Client, target, id string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Headgate-Tenant", "direct")
	request.Header.Set("Headgate-Job", id)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", response.StatusCode)
	}
	return err
}
