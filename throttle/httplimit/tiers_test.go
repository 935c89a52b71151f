package httplimit

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/throttle"
)

// tiers are 2, 4 and 6 an hour for each user.
func tiers() Rule {
	limit := func(n int64) throttle.Limit {
		return throttle.Limit{Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: n, Period: 366 * 24 * time.Hour}}
	}
	rule := Rule{
		Limit: limit(2), Key: ByUser(func(r *http.Request) string { return r.Header.Get("User") }),
		Tiers: map[string]throttle.Limit{"team": limit(4), "company": limit(6)},
		Tier:  func(r *http.Request) string { return r.Header.Get("Plan") },
	}
	rule.Limit.Name = "user"
	return rule
}

// TestTiers: each plan has its limit, beside the other rules, and who changes it keeps what was used.
func TestTiers(t *testing.T) {
	for name, client := range map[string]redis.UniversalClient{"redis-server": redistest.Shared(t).Client(), "miniredis": redistest.Embedded(t)} {
		t.Run(name, func(t *testing.T) {
			m := mustMiddleware(t, client, MiddlewareConfig{Rules: []Rule{tiers(), {Limit: perHour("all", 1000), Key: Everyone}}})
			serve := func(user, plan string) (int, string) {
				r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
				r.Header.Set("User", user)
				r.Header.Set("Plan", plan)
				w := httptest.NewRecorder()
				m.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, r)
				return w.Code, w.Header().Get("RateLimit-Policy")
			}
			for plan, want := range map[string]int{"": 2, "unknown": 2, "team": 4, "company": 6} {
				for i := range want + 1 {
					code, policy := serve("of "+plan, plan)
					if (code == 200) != (i < want) || !strings.Contains(policy, `"user";q=`+strconv.Itoa(want)) {
						t.Errorf("plan %q, request %d: %d, %s; want %d", plan, i+1, code, policy, want)
					}
				}
			}
			for _, step := range []struct {
				plan string
				code int
			}{{"", 200}, {"", 200}, {"", 429}, {"team", 200}, {"team", 200}, {"team", 429}, {"company", 200}, {"", 429}, {"company", 200}, {"company", 429}} {
				if code, _ := serve("climber", step.plan); code != step.code {
					t.Errorf("plan %q: %d; want %d", step.plan, code, step.code)
				}
			}
		})
	}
}

// TestWrongTiers: each mistake is one error that names the rule, the plan and the field.
func TestWrongTiers(t *testing.T) {
	client := redistest.Shared(t).Client()
	for want, wrong := range map[string]func(*Rule){
		`rule 1 "user": Tier: Tiers need a func`:                    func(r *Rule) { r.Tier = nil },
		`rule 1 "user": Tiers: there are none`:                      func(r *Rule) { r.Tiers = nil },
		`rule 1 "user": Tiers: "team": its limit is called "other"`: func(r *Rule) { r.Tiers["team"] = perHour("other", 3) },
		`rule 1 "user": Tiers: "team": a concurrency limit`:         func(r *Rule) { r.Tiers["team"] = atOnce("", 3) },
		`rule 1 "user": Tiers: "team": throttle: limit 1 "user": rate: its count must be at least`: func(r *Rule) {
			r.Tiers["team"] = throttle.Limit{Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: -1, Period: time.Hour}}
		},
		`rule 1 "user": Tiers: "team": shards: 2 shards are other buckets`: func(r *Rule) {
			limit := r.Tiers["team"]
			limit.Shards = 2
			r.Tiers["team"] = limit
		},
		`rule 1 "user": Tiers: 101 are more than 100`: func(r *Rule) {
			for i := range 99 {
				r.Tiers[strconv.Itoa(i)] = r.Limit
			}
		},
	} {
		rule := tiers()
		wrong(&rule)
		if _, err := NewMiddleware(client, MiddlewareConfig{Rules: []Rule{rule}, OnFailure: FailOpen}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v; want %s", err, want)
		}
	}
}
