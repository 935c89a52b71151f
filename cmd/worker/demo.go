package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/clients/email"
	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/clients/webhook"
	"github.com/headgate/headgate/queue"
)

// demo makes the traffic of `worker dev` and tells what becomes of it.
type demo struct {
	client  redis.UniversalClient
	enqueue *queue.Client
	web     *sandbox.HTTP
	post    *sandbox.SMTP
	out     io.Writer
	began   time.Time

	ended time.Time // of the traffic
}

const (
	topUpEvery = 100 * time.Millisecond
	tellEvery  = time.Second
	// wanted is what tenants want of what they may have: the backlog grows.
	wanted = 1.2
)

// run makes traffic until ctx is done or the time is over; ended gives a value
// when the worker ended by itself.
func (d *demo) run(ctx context.Context, lasts time.Duration, ended chan error) error {
	var over <-chan time.Time
	if lasts > 0 {
		timer := time.NewTimer(lasts)
		defer timer.Stop()
		over = timer.C
	}
	topUp, tell := time.NewTicker(topUpEvery), time.NewTicker(tellEvery)
	defer topUp.Stop()
	defer tell.Stop()
	sent := map[string]float64{}
	for {
		if err := d.topUp(ctx, sent); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-topUp.C:
		case <-tell.C:
			if err := d.tell(ctx); err != nil && ctx.Err() == nil {
				return err
			}
		case <-over:
			d.ended = time.Now()
			return nil
		case <-ctx.Done():
			d.ended = time.Now()
			return nil
		case err := <-ended:
			ended <- err
			return errors.New("the worker ended before the demo")
		}
	}
}

// topUp enqueues what each tenant has come to want since the last time.
func (d *demo) topUp(ctx context.Context, enqueued map[string]float64) error {
	// Half a second's worth stands ready from the start.
	elapsed := time.Since(d.began).Seconds() + 0.5
	var jobs []queue.Job
	for _, t := range demoTenants {
		for ; enqueued[t.name] < elapsed*float64(t.rate)*wanted; enqueued[t.name]++ {
			jobs = append(jobs, d.job(t, int(enqueued[t.name])))
		}
	}
	for _, result := range d.enqueue.EnqueueMany(ctx, jobs) {
		if result.Err != nil {
			return fmt.Errorf("enqueue demo traffic: %w", result.Err)
		}
	}
	return nil
}

func (d *demo) job(t demoTenant, n int) queue.Job {
	job := queue.Job{Kind: t.kind, Tenant: t.name}
	if t.kind == "email" {
		job.Payload = email.Message{
			From: t.name + "@example.com", To: email.Addresses{"you@example.com"},
			Subject: "Demo " + strconv.Itoa(n), Text: "Sent by worker dev.",
		}
	} else {
		body, _ := json.Marshal(map[string]int{"n": n}) // an int always encodes
		job.Payload = webhook.Request{URL: d.web.URL() + "/" + t.name, Body: body}
	}
	return job
}

// tell prints one line: what each tenant sent of what it was allowed.
func (d *demo) tell(ctx context.Context) error {
	books, err := d.books(ctx)
	if err != nil {
		return err
	}
	parts := make([]string, len(demoTenants))
	rejected := 0
	for i, t := range demoTenants {
		sent, allowed, refused := d.use(t, time.Now())
		rejected += refused
		parts[i] = fmt.Sprintf("%s %d of %d sent, %d waiting", t.name, sent, allowed, books.waiting[t.name])
	}
	_, err = fmt.Fprintf(d.out, "%4.0fs  %s | rejected %d\n", time.Since(d.began).Seconds(), strings.Join(parts, " | "), rejected)
	return err
}

// use is what a tenant's provider accepted until `until`, what it would have
// accepted at most since the first call, and what it refused.
func (d *demo) use(t demoTenant, until time.Time) (sent, allowed, rejected int) {
	calls, stats := d.web.Calls(), d.web.Stats()
	if t.kind == "email" {
		calls, stats = d.post.Calls(), d.post.Stats()
	}
	var first time.Time
	for _, call := range calls {
		if call.Tenant != t.name || !call.Accepted || call.At.After(until) {
			continue
		}
		sent++
		if first.IsZero() || call.At.Before(first) {
			first = call.At
		}
	}
	if sent > 0 {
		allowed = 1 + int(float64(t.rate)*until.Sub(first).Seconds())
	}
	return sent, allowed, stats[t.name].Rejected
}

// books is what Redis knows of the demo's jobs, and of those of a second terminal.
type books struct {
	waiting              map[string]int64 // in the lanes of each tenant
	enqueued, done, left int64            // left: in whatever state but done
}

func (d *demo) books(ctx context.Context) (books, error) {
	b := books{waiting: map[string]int64{}}
	for _, name := range []string{"webhook", "email"} {
		status, err := queue.ReadStatus(ctx, d.client, name)
		if err != nil {
			return books{}, err
		}
		b.enqueued += status.Enqueued
		b.left += status.Waiting + status.Scheduled + status.Retry + status.Pending + status.Active + status.Archived
		for _, t := range status.Tenants {
			b.waiting[t.Tenant] += t.Waiting
			b.done += t.Done
		}
	}
	return b, nil
}

// account prints what came of it all, and is an error if the promise was broken.
func (d *demo) account(ctx context.Context) error {
	fmt.Fprintf(d.out, "\nAfter %.1f s:\n", d.ended.Sub(d.began).Seconds())
	books, err := d.books(ctx)
	if err != nil {
		return err
	}
	for _, t := range demoTenants {
		sent, allowed, rejected := d.use(t, d.ended)
		part := 0.0
		if allowed > 0 {
			part = float64(sent) / float64(allowed)
		}
		fmt.Fprintf(d.out, "  %-8s %4d/s  sent %5d of %5d allowed (%.3f), rejected by the provider: %d\n", t.name, t.rate, sent, allowed, part, rejected)
	}
	called, rejected, twice := map[string]int{}, 0, 0
	for _, call := range append(d.web.Calls(), d.post.Calls()...) {
		if call.Accepted {
			if called[call.Job]++; called[call.Job] > 1 {
				twice++
			}
		}
	}
	for _, stats := range []map[string]sandbox.Stats{d.web.Stats(), d.post.Stats()} {
		for _, s := range stats {
			rejected += s.Rejected
		}
	}
	missing := books.enqueued - books.done - books.left
	fmt.Fprintf(d.out, "  jobs: %d enqueued, %d done, %d still waiting, %d called twice, %d unaccounted for\n",
		books.enqueued, books.done, books.left, twice, missing)
	switch {
	case rejected > 0:
		return fmt.Errorf("the providers saw %d violations", rejected)
	case missing != 0:
		return fmt.Errorf("%d jobs are unaccounted for", missing)
	case twice > 0:
		return fmt.Errorf("%d jobs were called twice", twice)
	}
	return nil
}

func splitPort(addr string) (string, int) {
	host, text, _ := net.SplitHostPort(addr)
	port, _ := strconv.Atoi(text) // a listener's own address
	return host, port
}
