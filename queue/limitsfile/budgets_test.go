package limitsfile

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/headgate/headgate/queue/limits"
)

const budgetFile = `queues:
  ai: {kinds: [ai]}
  email:
    kinds: [email]
    limits:
      - {name: own, algorithm: token_bucket, rate: 5/s}
budgets:
  - {name: spend, unit: cents, rate: 50000/day, timezone: UTC, per: [tenant], queues: [ai, email]}
plans:
  large: {budgets: {spend: {rate: 90000/day}}}
tenants:
  acme: {plan: large}
`

// TestBudgets: a budget is a limit of each of its queues, and changes for a tenant in all of them.
func TestBudgets(t *testing.T) {
	set, err := Parse([]byte(budgetFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ai", "email"} {
		all := set.Queues[name].Limits
		budget := all[len(all)-1]
		if budget.Name != "spend" || !budget.Leased() || fmt.Sprint(budget.Algorithm, " ", budget.Queues, budget.Per, " ", budget.Rate) != "fixed_window [ai email] [tenant] 50000/day" {
			t.Errorf("queue %s: %+v", name, all)
		}
		if change := set.Tenants["acme"].Limits[name]["spend"]; change.Rate == nil || change.Rate.Count != 90000 {
			t.Errorf("queue %s: tenant acme has %v", name, change)
		}
	}
	text, err := Format(set)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if second, _ := Format(again); string(second) != string(text) || !reflect.DeepEqual(limits.Names(again.Queues["email"].Limits), []string{"own", "spend"}) {
		t.Errorf("read again:\n%s", second)
	}
}

func TestMistakesOfBudgets(t *testing.T) {
	_, err := Parse([]byte(`queues:
  ai: {}
  email: {limits: [{name: taken, algorithm: token_bucket, rate: 5/s}]}
budgets:
  - {name: few, rate: 5/day, queues: [ai]}
  - {name: none, rate: 5/day}
  - {name: lost, rate: 5/day, queues: [ai, emial]}
  - {name: twice, rate: 5/day, queues: [ai, email, ai]}
  - {name: taken, rate: 5/day, queues: [ai, email]}
  - {name: slow, algorithm: token_bucket, rate: 5/day, queues: [ai, email]}
  - {name: by-kind, rate: 5/day, per: [kind], queues: [ai, email]}
  - {name: moving, rate: 5/day, adaptive: true, queues: [ai, email]}
  - {name: rateless, queues: [ai, email]}
  - {name: half, rate: often, queues: [ai, email]}
  - {name: good, rate: 5/day, per: [tenant], queues: [ai, email]}
  - {name: good, rate: 6/day, queues: [ai, email]}
tenants:
  acme: {budgets: {twice: {rate: 9/day}}}
  globex: {limits: {ai: {good: {rate: 9/day}}}}
`))
	const want = `line 5: budgets[0].queues: name two queues or more; of one queue, a limit is enough
line 6: budgets[1].queues: required: name two queues or more, which share the budget
line 7: budgets[2].queues[1]: unknown queue "emial"; did you mean "email"?
line 8: budgets[3].queues[2]: ai must not be listed twice
line 9: budgets[4].name: "taken" is the name of another limit of this queue
line 10: budgets[5].algorithm: "token_bucket" must be fixed_window, or left out: of a budget, each queue takes a part of a window's count
line 11: budgets[6].per: a budget is per tenant, or for all tenants together
line 12: budgets[7].adaptive: a budget does not adapt: providers do not answer for several queues
line 13: budgets[8].rate: required: COUNT/PERIOD, such as 300/s, 10000/day or 1/90s
line 14: budgets[9].rate: "often" must be COUNT/PERIOD, such as 300/s, 10000/day or 1/90s
line 16: budgets[11].name: "good" is the name of another limit of this queue
line 18: tenants.acme.budgets.twice: all tenants share this limit, so it cannot differ for one of them
line 19: tenants.globex.limits.ai.good: queue email must have the same change, because they share the budget`
	if got := fmt.Sprint(err); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if _, err := Parse([]byte("queues: {a: {}, b: {}}\nbudgets: [{name: spend, rate: 5/day, per: [tenant], queues: [a, b]}]\ntenants: {acme: {budgets: {spent: {rate: 9/day}}}}\n")); fmt.Sprint(err) !=
		`line 3: tenants.acme.budgets.spent: there is no budget of this name; did you mean "spend"?` {
		t.Error(err)
	}
}
