package queuetest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/queuetest"
)

// The code under test: a shop that sends a text for each order, now, and asks for an
// opinion a week later.

type SMS struct{ To, Text string }

const SendSMS queue.Kind[SMS] = "sms"

type Shop struct{ jobs *queue.Client }

func (s Shop) Order(ctx context.Context, customer string) error {
	if _, err := s.jobs.Enqueue(ctx, SendSMS.Job("shop", SMS{customer, "on its way"})); err != nil {
		return err
	}
	later := SendSMS.Job("shop", SMS{customer, "how was it?"})
	later.In = 7 * 24 * time.Hour
	_, err := s.jobs.Enqueue(ctx, later)
	return err
}

// A test of the producer: what was enqueued? Nothing runs.
func TestExampleProducer(t *testing.T) {
	q := queuetest.Start(t, "sms")
	if err := (Shop{q.Client}).Order(t.Context(), "Ada"); err != nil {
		t.Fatal(err)
	}
	jobs := queuetest.RequireEnqueued(q, SendSMS, SMS{"Ada", "on its way"}, SMS{"Ada", "how was it?"})
	if wait := time.Until(jobs[1].Due); wait < 6*24*time.Hour {
		t.Errorf("the opinion is asked for in %v", wait)
	}
}

// A test of the handler: one call, in this goroutine.
func TestExampleHandler(t *testing.T) {
	q := queuetest.Start(t, "sms")
	queue.Handle(q.Worker, SendSMS, func(_ context.Context, sms SMS) error {
		if sms.To == "" {
			return errors.New("no number")
		}
		return nil
	})
	if run := q.Work(SendSMS.Job("shop", SMS{To: "Ada"})); run.Outcome != lifecycle.Done {
		t.Error(run)
	}
	if run := q.Work(SendSMS.Job("shop", SMS{})); run.Outcome != lifecycle.Retried {
		t.Error(run)
	}
}

// A test of both and of the time between them, with a provider that fails once.
func TestExampleBoth(t *testing.T) {
	q := queuetest.Start(t, "sms")
	var sent []string // no lock: Drain runs one job at a time
	failures := 1
	queue.Handle(q.Worker, SendSMS, func(_ context.Context, sms SMS) error {
		if failures > 0 {
			failures--
			return errors.New("503")
		}
		sent = append(sent, sms.Text)
		return nil
	})
	if err := (Shop{q.Client}).Order(t.Context(), "Ada"); err != nil {
		t.Fatal(err)
	}

	q.Drain() // the first attempt fails
	q.Advance(time.Minute)
	q.Drain() // the second does not
	if len(sent) != 1 || sent[0] != "on its way" {
		t.Errorf("sent on the first day: %q", sent)
	}
	q.Advance(7 * 24 * time.Hour)
	q.Drain()
	if len(sent) != 2 || sent[1] != "how was it?" {
		t.Errorf("sent after a week: %q", sent)
	}
	for i, want := range []lifecycle.Outcome{lifecycle.Retried, lifecycle.Done, lifecycle.Done} {
		if run := q.Outcomes()[i]; run.Outcome != want {
			t.Errorf("run %d: %v; want %s", i, run, want)
		}
	}
}
