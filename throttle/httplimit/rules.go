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

// ruleBook has a limiter for each combination of rules that applies to a request:
// mostly all of them.
type ruleBook struct {
	client redis.UniversalClient
	prefix string
	rules  []Rule

	mu   sync.RWMutex
	sets map[uint64]*ruleSet // by the rules that apply, one bit each
}

// ruleSet are rules that are asked together, in one round trip.
type ruleSet struct {
	limiter *throttle.Limiter
	limits  []throttle.Limit // without the padding
	padded  bool
	policy  string // the RateLimit-Policy header
	holds   bool   // one of them is a concurrency limit
}

func newRuleBook(client redis.UniversalClient, prefix string, rules []Rule) (*ruleBook, error) {
	if err := checkRules(rules); err != nil {
		return nil, err
	}
	book := &ruleBook{client: client, prefix: prefix, rules: rules, sets: map[uint64]*ruleSet{}}
	// The whole set is checked now; any part of it is then right as well.
	if _, err := book.set(1<<len(rules) - 1); err != nil {
		return nil, err
	}
	return book, nil
}

// apply finds the rules that apply to a request, and their keys. No set means
// that none does.
func (b *ruleBook) apply(r *http.Request) (*ruleSet, []string, error) {
	keys := make([]string, 0, len(b.rules)+1)
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
	if err != nil {
		return nil, nil, err
	}
	if set.padded {
		keys = append(keys, "")
	}
	return set, keys, nil
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
			set.limits = append(set.limits, rule.Limit)
			set.holds = set.holds || rule.Limit.Algorithm == throttle.Concurrency
		}
	}
	set.policy = policyHeader(set.limits)
	limits := set.limits
	if len(limits) == 1 && len(b.rules) > 1 {
		limits, set.padded = append(limits[:1:1], b.padding()), true
	}
	limiter, err := throttle.New(b.client, b.prefix, limits...)
	if err != nil {
		return nil, err
	}
	set.limiter = limiter
	b.sets[which] = set
	return set, nil
}

// padding is a limit that admits everything. Limits that are taken together
// have other buckets than a limit alone; where only one of several rules applies,
// this one keeps it company, so that its bucket is the one it always has.
func (b *ruleBook) padding() throttle.Limit {
	name := "(none)"
	for slices.ContainsFunc(b.rules, func(rule Rule) bool { return rule.Limit.Name == name }) {
		name += "."
	}
	// So large a burst is not used up by a call that goes far in the future either.
	return throttle.Limit{Name: name, Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(1_000_000), Burst: 1 << 50}
}

// named is the limit that a decision speaks of.
func (s *ruleSet) named(d throttle.Decision) throttle.Limit {
	for _, limit := range s.limits {
		if limit.Name == d.Limit {
			return limit
		}
	}
	return s.limits[0] // the padding has fewer left, which is practically no limit
}
