package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/clients/email"
	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/worker"
)

// The limits of the queue of email that correspond to the limits of the SES account.
const (
	sesRate = "ses-rate"
	sesDay  = "ses-day"

	sesFresh = time.Hour   // how often SES is asked
	sesAgain = time.Minute // the same, until its first answer

	// sesBurst is how many recipients SES allows in one mail. A lower burst would reject mail that
	// SES accepts.
	sesBurst = 50
)

// sesLimits lowers the limits of the limits file to those of the SES account. An override
// cannot do that: it changes a limit for one tenant, and all tenants share the account.
type sesLimits struct {
	quota  func(context.Context) (email.SESQuota, error)
	again  func(context.Context) error // puts the limits in effect again
	logger *slog.Logger

	mu    sync.Mutex
	known *email.SESQuota // nil until SES has answered
	at    time.Time       // when it did
}

// useSESLimits lowers a program's limits to those of the SES account.
func (c config) useSESLimits(ctx context.Context, p *worker.Program) error {
	ses, err := c.ses()
	if err != nil {
		return err
	}
	p.Defer(ses.Close)
	s := &sesLimits{quota: ses.Quota, logger: p.Logger}
	s.again = p.AdjustLimits(s.lowered)
	p.Go(s.run)
	p.Details.AddQuotas("email", s.quotas)
	if err := s.ask(ctx); err != nil {
		p.Logger.Warn("the limits of the SES account are not known yet; those of the limits file are in effect", "error", err)
	}
	return nil
}

// lowered returns the limits with those of the account, where these are lower. Before SES has
// answered, the limits stay as they are: SES rejects what exceeds its own.
func (s *sesLimits) lowered(set limits.Set) (limits.Set, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		return lower(set, email.SESQuota{})
	}
	return lower(set, *s.known)
}

// ask asks SES what the account may send.
func (s *sesLimits) ask(ctx context.Context) error {
	quota, err := s.quota(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || s.known.PerSecond != quota.PerSecond || s.known.PerDay != quota.PerDay {
		s.logger.Info("the limits of the SES account", "recipients_per_second", quota.PerSecond, "recipients_per_day", quota.PerDay, "sent_last_day", quota.LastDay)
	}
	if !quota.Sending {
		s.logger.Warn("the SES account may not send at present")
	}
	s.known, s.at = &quota, time.Now()
	return nil
}

// run asks again every hour until ctx is done. While SES does not answer, its last answer
// applies.
func (s *sesLimits) run(ctx context.Context) error {
	for {
		next := sesFresh
		s.mu.Lock()
		if s.known == nil {
			next = sesAgain
		}
		s.mu.Unlock()
		if wait.For(ctx, next) != nil {
			return nil
		}
		err := s.ask(ctx)
		if err == nil {
			err = s.again(ctx)
		}
		if err != nil && ctx.Err() == nil {
			s.logger.Warn("the limits of the SES account are as they were", "error", err)
		}
	}
}

// lower returns the limits with those of the account, where these are lower. It rejects limits
// without one that could be lowered.
func lower(set limits.Set, quota email.SESQuota) (limits.Set, error) {
	name := ""
	for of, q := range set.Queues {
		if slices.Contains(q.Kinds, "email") {
			name = of
		}
	}
	if name == "" {
		return set, errors.New("HEADGATE_SES_ACCOUNT_LIMITS: no queue of the limits file has the kind email")
	}
	q := set.Queues[name]
	q.Limits = slices.Clone(q.Limits)
	find := func(limit string, fits func(limits.Limit) bool, want string) (*limits.Limit, error) {
		i := slices.IndexFunc(q.Limits, func(l limits.Limit) bool { return l.Name == limit })
		if i < 0 || len(q.Limits[i].Per) > 0 || q.Limits[i].Unit != "recipients" || !fits(q.Limits[i]) {
			return nil, fmt.Errorf("HEADGATE_SES_ACCOUNT_LIMITS: queue %s needs a limit such as {name: %s, %s, unit: recipients}, without per", name, limit, want)
		}
		return &q.Limits[i], nil
	}
	rate, err := find(sesRate, func(l limits.Limit) bool {
		return l.Algorithm == throttle.LeakyBucket || l.Algorithm == throttle.TokenBucket
	}, "algorithm: leaky_bucket, rate: 1000/s")
	if err != nil {
		return set, err
	}
	perDay, err := find(sesDay, func(l limits.Limit) bool { return l.Rate.Period == 24*time.Hour }, "algorithm: sliding_window_counter, rate: 1000000/day")
	if err != nil {
		return set, err
	}
	// Partitions cannot share a sliding window.
	if a := perDay.Algorithm; q.Partitions <= 1 && a != throttle.SlidingWindowCounter && a != throttle.SlidingWindowLog {
		return set, fmt.Errorf("HEADGATE_SES_ACCOUNT_LIMITS: queue %s: limit %s: algorithm: %s does not count the last 24 hours, as SES does: write %s", name, sesDay, a, throttle.SlidingWindowCounter)
	}
	if quota.PerSecond > 0 {
		rate.Burst = min(rate.Burst, max(int64(quota.PerSecond), sesBurst))
	}
	if quota.PerSecond > 0 && quota.PerSecond < float64(rate.Rate.Count)/rate.Rate.Period.Seconds() {
		if rate.Rate = throttle.PerSecond(int64(quota.PerSecond)); float64(rate.Rate.Count) != quota.PerSecond {
			rate.Rate = throttle.Rate{Count: max(int64(quota.PerSecond*3600), 1), Period: time.Hour}
		}
	}
	if quota.PerDay > 0 {
		perDay.Rate.Count = min(perDay.Rate.Count, quota.PerDay)
	}
	set.Queues = maps.Clone(set.Queues)
	set.Queues[name] = q
	return set, nil
}

// quotas returns the account's limits from the last answer of SES.
func (s *sesLimits) quotas() []api.Quota {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		return nil
	}
	var all []api.Quota
	said := s.at.UTC().Truncate(time.Millisecond)
	if perSecond := int64(s.known.PerSecond); perSecond > 0 {
		all = append(all, api.Quota{Name: "recipients/s", Limit: perSecond, WindowSeconds: 1, SaidAt: said, LimitName: sesRate})
	}
	if s.known.PerDay > 0 {
		all = append(all, api.Quota{Name: "recipients/24h", Limit: s.known.PerDay, Remaining: new(max(s.known.PerDay-s.known.LastDay, 0)), WindowSeconds: 86400, SaidAt: said, LimitName: sesDay})
	}
	return all
}
