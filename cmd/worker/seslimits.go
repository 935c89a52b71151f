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
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// The limits of the queue of email that stand for those of the SES account.
const (
	sesRate = "ses-rate"
	sesDay  = "ses-day"

	sesFresh = time.Hour   // how often SES is asked
	sesAgain = time.Minute // and when it did not answer
)

// sesLimits puts limits in force, and of the SES account's own and the file's the
// lower ones. An override could not: it changes a limit for one tenant, and an
// account's is shared by all.
type sesLimits struct {
	quota   func(context.Context) (email.SESQuota, error) // nil: the file's alone count
	publish func(context.Context, limits.Set) error
	logger  *slog.Logger

	mu     sync.Mutex
	limits limits.Set      // of the file, as they were put in force last
	known  *email.SESQuota // nil until SES has answered
}

// put puts the file's limits in force. Before SES has answered they hold as they
// are: SES refuses what is over its own.
func (s *sesLimits) put(ctx context.Context, set limits.Set) error {
	if s.quota == nil {
		return s.publish(ctx, set)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	quota := email.SESQuota{}
	if s.known != nil {
		quota = *s.known
	}
	lowered, err := lower(set, quota)
	if err != nil {
		return err
	}
	if err := s.publish(ctx, lowered); err != nil {
		return err
	}
	s.limits = set
	return nil
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
	s.known = &quota
	return nil
}

// run asks again every hour until ctx is done. What SES said last holds while it
// does not answer.
func (s *sesLimits) run(ctx context.Context) error {
	if s.quota == nil {
		return nil
	}
	for {
		next := sesFresh
		s.mu.Lock()
		if s.known == nil {
			next = sesAgain
		}
		s.mu.Unlock()
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		err := s.ask(ctx)
		if err == nil {
			s.mu.Lock()
			set := s.limits
			s.mu.Unlock()
			err = s.put(ctx, set)
		}
		if err != nil && ctx.Err() == nil {
			s.logger.Warn("the limits of the SES account are as they were", "error", err)
		}
	}
}

// lower is the limits with those of the account, where these are lower. It refuses
// limits in which there is nothing to lower.
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

// quotas is what SES told of the account last.
func (s *sesLimits) quotas() []api.Quota {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		return nil
	}
	var all []api.Quota
	if perSecond := int64(s.known.PerSecond); perSecond > 0 {
		all = append(all, api.Quota{Name: "recipients/s", Limit: perSecond})
	}
	if s.known.PerDay > 0 {
		all = append(all, api.Quota{Name: "recipients/24h", Limit: s.known.PerDay, Remaining: new(max(s.known.PerDay-s.known.LastDay, 0))})
	}
	return all
}

// sesLimits puts the account's limits before publish, where the operator wants
// them; stop ends the connections to SES.
func (c config) sesLimits(ctx context.Context, publish func(context.Context, limits.Set) error, logger *slog.Logger) (set *sesLimits, stop func(), err error) {
	set = &sesLimits{publish: publish, logger: logger}
	if !c.SESAccountLimits {
		return set, func() {}, nil
	}
	ses, err := c.ses()
	if err != nil {
		return nil, nil, err
	}
	set.quota = ses.Quota
	if err := set.ask(ctx); err != nil {
		logger.Warn("the limits of the SES account are not known yet; those of the limits file hold", "error", err)
	}
	return set, ses.Close, nil
}
