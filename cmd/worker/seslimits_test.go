package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/clients/email"
	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/limitsfile"
	"github.com/headgate/headgate/throttle"
)

const sesFile = `queues:
  email:
    kinds: [email]
    limits:
      - {name: tenant, per: [tenant], algorithm: token_bucket, rate: 10/s}
      - {name: ses-rate, algorithm: leaky_bucket, rate: 100/s, unit: recipients}
      - {name: ses-day, algorithm: sliding_window_counter, rate: 100000/day, unit: recipients}
`

func sesLimitsOf(t *testing.T, text string) limits.Set {
	t.Helper()
	limits, err := limitsfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return limits
}

func TestLower(t *testing.T) {
	for _, tt := range []struct {
		quota     email.SESQuota
		rate, day string
	}{
		{email.SESQuota{}, "100/s", "100000/day"},
		{email.SESQuota{PerSecond: 14, PerDay: 50_000}, "14/s", "50000/day"},
		{email.SESQuota{PerSecond: 1.5, PerDay: -1}, "5400/h", "100000/day"},
		{email.SESQuota{PerSecond: 1e-9, PerDay: 200}, "1/h", "200/day"},
		{email.SESQuota{PerSecond: 5000, PerDay: 10_000_000}, "100/s", "100000/day"},
	} {
		file := sesLimitsOf(t, sesFile)
		lowered, err := lower(file, tt.quota)
		if err != nil {
			t.Fatal(err)
		}
		got := lowered.Queues["email"].Limits
		if rate, day := rateOf(got[1]), rateOf(got[2]); rate != tt.rate || day != tt.day || rateOf(got[0]) != "10/s" {
			t.Errorf("%+v: %s and %s; want %s and %s", tt.quota, rate, day, tt.rate, tt.day)
		}
		if was := file.Queues["email"].Limits; rateOf(was[1]) != "100/s" || rateOf(was[2]) != "100000/day" {
			t.Error("the file's own limits were changed")
		}
		if err := lowered.Validate(); err != nil {
			t.Error(err)
		}
	}
	for text, want := range map[string]string{
		"queues: {webhook: {kinds: [webhook]}}":                      "no queue of the limits file has the kind email",
		"queues: {email: {kinds: [email]}}":                          "queue email needs a limit such as {name: ses-rate, algorithm: leaky_bucket",
		strings.Replace(sesFile, "ses-day", "daily", 1):              "queue email needs a limit such as {name: ses-day, algorithm: sliding_window_counter",
		strings.Replace(sesFile, "/day", "/h", 1):                    "name: ses-day",
		strings.Replace(sesFile, ", unit: recipients", "", 1):        "name: ses-rate",
		strings.Replace(sesFile, "-day,", "-day, per: [tenant],", 1): "name: ses-day",

		strings.Replace(sesFile, "sliding_window_counter", "fixed_window", 1): "queue email: limit ses-day: algorithm: fixed_window does not count the last 24 hours, as SES does: write sliding_window_counter",
		strings.Replace(sesFile, "sliding_window_counter", "token_bucket", 1): "limit ses-day: algorithm: token_bucket does not",
	} {
		if _, err := lower(sesLimitsOf(t, text), email.SESQuota{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// TestLowerBurst: a token bucket does not admit at once what the account may send only over many
// seconds, but it always admits a mail with as many recipients as SES allows.
func TestLowerBurst(t *testing.T) {
	for _, tt := range []struct {
		perSecond   float64
		burst, want int64
	}{
		{14, 1000, 50},
		{14, 20, 20},
		{200, 1000, 200},
		{5000, 10_000, 5000}, // although the rate of the file is lower
		{0, 1000, 1000},
	} {
		file := sesLimitsOf(t, sesFile)
		rate := &file.Queues["email"].Limits[1]
		rate.Algorithm, rate.Rate, rate.Burst = throttle.TokenBucket, throttle.PerSecond(1000), tt.burst
		lowered, err := lower(file, email.SESQuota{PerSecond: tt.perSecond})
		if err != nil {
			t.Fatal(err)
		}
		if got := lowered.Queues["email"].Limits[1].Burst; got != tt.want || rate.Burst != tt.burst {
			t.Errorf("%v/s, burst %d: %d; want %d", tt.perSecond, tt.burst, got, tt.want)
		}
	}
}

// TestLowerPartitions: partitions share neither sliding windows nor leaky buckets with a unit, so
// other limits can be lowered for them.
func TestLowerPartitions(t *testing.T) {
	text := strings.NewReplacer("kinds:", "partitions: 2\n    kinds:", "sliding_window_counter", "fixed_window",
		"leaky_bucket, rate", "token_bucket, burst: 1000, rate").Replace(sesFile)
	lowered, err := lower(sesLimitsOf(t, text), email.SESQuota{PerSecond: 14, PerDay: 50_000})
	if err != nil {
		t.Fatal(err)
	}
	if err := lowered.Validate(); err != nil {
		t.Error(err)
	}
}

func rateOf(l limits.Limit) string { return l.Rate.String() }

// TestSESLimitsRefresh: the account is asked every hour, and what it said last
// holds while it does not answer.
func TestSESLimitsRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var quota email.SESQuota
		failing := errors.New("away")
		var inForce []string
		s := &sesLimits{
			quota: func(context.Context) (email.SESQuota, error) {
				mu.Lock()
				defer mu.Unlock()
				return quota, failing
			},
			logger: slog.New(slog.DiscardHandler),
		}
		s.again = func(context.Context) error {
			set, err := s.lowered(sesLimitsOf(t, sesFile))
			mu.Lock()
			defer mu.Unlock()
			inForce = append(inForce, rateOf(set.Queues["email"].Limits[1]))
			return err
		}
		if s.ask(t.Context()) == nil {
			t.Error("no error")
		}
		if err := s.again(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.run(ctx) }()
		after := func(d time.Duration, change func(), want string) {
			t.Helper()
			mu.Lock()
			change()
			mu.Unlock()
			time.Sleep(d + time.Second)
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(inForce, " "); got != want {
				t.Errorf("in force %s; want %s", got, want)
			}
		}
		after(time.Minute, func() {}, "100/s")
		after(time.Minute, func() { failing, quota = nil, email.SESQuota{PerSecond: 14} }, "100/s 14/s")
		after(time.Hour, func() { quota.PerSecond = 7 }, "100/s 14/s 7/s")
		after(time.Hour, func() { failing = errors.New("away") }, "100/s 14/s 7/s")
		after(time.Hour, func() { failing, quota.PerSecond = nil, 1000 }, "100/s 14/s 7/s 100/s")
		stop()
		<-done
	})
}

// TestSESAccountLimits: from the account to the limits in force.
func TestSESAccountLimits(t *testing.T) {
	server := redistest.Start(t)
	ses, err := sandbox.NewSES(sandbox.SESConfig{Daily: 50_000})
	if err != nil {
		t.Fatal(err)
	}
	defer ses.Close()
	ses.SetAccountLimit(sandbox.Limit{Rate: 14, Burst: 14})
	for name, value := range map[string]string{
		"EMAIL_PROVIDER": "ses", "SES_REGION": "eu-central-1", "SES_ACCESS_KEY_ID": "a", "SES_SECRET_ACCESS_KEY": "s",
		"SES_ENDPOINT": ses.URL(), "SES_ACCOUNT_LIMITS": "true",
	} {
		t.Setenv(prefix+name, value)
	}
	quietly(t, server.URL(), "queues: {email: {kinds: [email]}}")
	if _, errText, code := command(t.Context(), "run"); code != 1 || !strings.Contains(errText, "needs a limit such as {name: ses-rate") {
		t.Errorf("%s, exit %d", errText, code)
	}
	quietly(t, server.URL(), sesFile)
	running(t)
	untilReady(t)
	until.Done(t, "SES's limits are in force", func() bool {
		all, err := inspect.LimitsInForce(t.Context(), server.Client(), "email", "")
		return err == nil && len(all) == 3 && all[1].String() == "14/s" && strings.HasPrefix(all[2].String(), "50000/")
	})
}
