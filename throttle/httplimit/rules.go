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

// ruleBook has a limiter for each combination of rules and tiers that applies to a request:
// usually it is all rules, and few tiers.
type ruleBook struct {
	client redis.UniversalClient
	prefix string
	rules  []Rule
	limits [][]throttle.Limit // of each rule: see Rule.limits
	plans  [][]string         // of each rule, in the order of its limits behind the first

	mu   sync.RWMutex
	sets map[choice]*ruleSet
}

// choice says which limit of each rule applies: the first one is 1, and 0 is none.
type choice [maxRules]uint8

const (
	maxRules = 16 // of a throttle.Limiter

	// maxSets bounds the combinations that are kept: there are more if several rules have tiers.
	maxSets = 1000
)

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
	b := &ruleBook{client: client, prefix: prefix, rules: rules, sets: map[choice]*ruleSet{}}
	for _, rule := range rules {
		b.limits, b.plans = append(b.limits, rule.limits()), append(b.plans, rule.plans())
	}
	if _, err := b.limiter(choice{}); err != nil {
		return nil, err
	}
	var errs []error
	for i, limits := range b.limits {
		for which := 1; which < len(limits); which++ {
			tier := choice{}
			tier[i] = uint8(which) + 1
			if _, err := b.limiter(tier); err != nil {
				errs = append(errs, fmt.Errorf("httplimit: rule %d %q: Tiers: %.60q: %w", i+1, rules[i].Limit.Name, b.plans[i][which-1], err))
			}
		}
	}
	return b, errors.Join(errs...)
}

// limiter returns a limiter of all rules, with the tiers of a choice.
func (b *ruleBook) limiter(which choice) (*throttle.Limiter, error) {
	limits := make([]throttle.Limit, len(b.rules))
	for i, all := range b.limits {
		limits[i] = all[0]
		if i < maxRules && which[i] > 0 {
			limits[i] = all[which[i]-1]
		}
	}
	return throttle.New(b.client, b.prefix, limits...)
}

// apply returns the rules that apply to a request and the keys of their buckets. The set
// is nil if no rule applies.
func (b *ruleBook) apply(r *http.Request) (*ruleSet, []string, error) {
	keys := make([]string, 0, len(b.rules))
	var which choice
	for i, rule := range b.rules {
		key, err := rule.Key(r)
		if errors.Is(err, ErrSkip) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("httplimit: key of rule %q: %w", rule.Limit.Name, err)
		}
		keys = append(keys, bounded(key))
		which[i] = 1
		if rule.Tier != nil {
			if at, ok := slices.BinarySearch(b.plans[i], rule.Tier(r)); ok {
				which[i] = uint8(at) + 2
			}
		}
	}
	if which == (choice{}) {
		return nil, nil, nil
	}
	set, err := b.set(which)
	return set, keys, err
}

func (b *ruleBook) set(which choice) (*ruleSet, error) {
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
	for i, limits := range b.limits {
		if which[i] > 0 {
			limit := limits[which[i]-1]
			set.names = append(set.names, limit.Name)
			set.limits = append(set.limits, limit)
			set.holds = set.holds || limit.Algorithm == throttle.Concurrency
		}
	}
	set.policy = policyHeader(set.limits)
	all, err := b.limiter(which)
	if err != nil {
		return nil, err
	}
	if set.limiter, err = all.Only(set.names...); err != nil {
		return nil, err
	}
	if len(b.sets) >= maxSets {
		clear(b.sets)
	}
	b.sets[which] = set
	return set, nil
}

// named returns the limit that a decision describes.
func (s *ruleSet) named(d throttle.Decision) throttle.Limit {
	return s.limits[slices.IndexFunc(s.limits, func(limit throttle.Limit) bool { return limit.Name == d.Limit })]
}
