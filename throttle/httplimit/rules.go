package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
)

// ruleBook has a limiter for each combination of rules that applies to a request, which
// is usually all of them.
type ruleBook struct {
	limiter *throttle.Limiter // of all rules
	rules   []Rule

	mu   sync.RWMutex
	sets map[uint64]*ruleSet // by the rules that apply, one bit each
}

// ruleSet is rules that are asked together, in one round trip.
type ruleSet struct {
	limiter *throttle.Limiter
	limits  []throttle.Limit
	names   []string // of the limits
	policy  string   // the RateLimit-Policy header
	holds   bool     // one of them is a concurrency limit
}

func newRuleBook(client redis.UniversalClient, prefix string, rules []Rule) (*ruleBook, error) {
	if err := checkRules(rules); err != nil {
		return nil, err
	}
	limits := make([]throttle.Limit, len(rules))
	for i, rule := range rules {
		limits[i] = rule.Limit
	}
	limiter, err := throttle.New(client, prefix, limits...)
	if err != nil {
		return nil, err
	}
	return &ruleBook{limiter: limiter, rules: rules, sets: map[uint64]*ruleSet{}}, nil
}

// apply returns the rules that apply to a request and the keys of their buckets. The set
// is nil if no rule applies.
func (b *ruleBook) apply(r *http.Request) (*ruleSet, []string, error) {
	keys := make([]string, 0, len(b.rules))
	var which uint64
	for i, rule := range b.rules {
		key, err := rule.Key(r)
		if errors.Is(err, ErrSkip) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("httplimit: key of rule %q: %w", rule.Limit.Name, err)
		}
		keys = append(keys, bounded(key))
		which |= 1 << i
	}
	if which == 0 {
		return nil, nil, nil
	}
	set, err := b.set(which)
	return set, keys, err
}

func (b *ruleBook) set(which uint64) (*ruleSet, error) {
	b.mu.RLock()
	set := b.sets[which]
	b.mu.RUnlock()
	if set != nil {
		return set, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if set := b.sets[which]; set != nil {
		return set, nil
	}
	set = &ruleSet{}
	for i, rule := range b.rules {
		if which&(1<<i) != 0 {
			set.names = append(set.names, rule.Limit.Name)
			set.limits = append(set.limits, rule.Limit)
			set.holds = set.holds || rule.Limit.Algorithm == throttle.Concurrency
		}
	}
	set.policy = policyHeader(set.limits)
	var err error
	if set.limiter, err = b.limiter.Only(set.names...); err != nil {
		return nil, err
	}
	b.sets[which] = set
	return set, nil
}

// named returns the limit that a decision describes.
func (s *ruleSet) named(d throttle.Decision) throttle.Limit {
	return s.limits[slices.IndexFunc(s.limits, func(limit throttle.Limit) bool { return limit.Name == d.Limit })]
}
