package limitsfile

import (
	"reflect"
	"testing"

	"github.com/headgate/headgate/queue/limits"
)

func TestGuarantees(t *testing.T) {
	set, err := Parse([]byte(`
queues:
  email: {kinds: [email], limits: [{name: account, algorithm: leaky_bucket, rate: 100/s}]}
plans:
  gold: {guarantee: 12.5%, weight: 2}
  large: {guarantee: 100%} # which nobody has
tenants:
  acme: {plan: gold}
  globex: {plan: gold, guarantee: 60%}
  hooli: {guarantee: 0.01%}
`))
	if err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]float64{"acme": 0.125, "globex": 0.6, "hooli": 0.0001} {
		if got := set.Tenants[tenant].Guarantee; got != want {
			t.Errorf("%v are guaranteed to %s, want %v", got, tenant, want)
		}
	}
	text, err := Format(set)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(text)
	for tenant, own := range set.Tenants { // plans are written out
		if other := again.Tenants[tenant]; other.Guarantee != own.Guarantee || other.Weight != own.Weight {
			t.Errorf("%+v was written as %+v", own, other)
		}
	}
	if err != nil || !reflect.DeepEqual(again.Queues, set.Queues) {
		t.Errorf("%v; written as\n%s", err, text)
	}
}

func TestGuaranteeMistakes(t *testing.T) {
	_, err := Parse([]byte(`
queues:
  email: {kinds: [email], limits: [{name: account, algorithm: leaky_bucket, rate: 100/s}]}
plans:
  gold: {guarantee: 40%}
tenants:
  a: {plan: gold}
  b: {plan: gold}
  c: {guarantee: 20%}
  d: {plan: gold}
  e: {guarantee: 0.2}
  f: {guarantee: 0%}
  g: {guarantee: 0.001%}
  h: {guarantee: 33.333%}
`))
	want := `line 10: tenants.d.guarantee: the guarantees up to this tenant add up to 140%; at most 100% is possible
line 11: tenants.e.guarantee: must be more than 0% and at most 100%, not "0.2"
line 12: tenants.f.guarantee: must be more than 0% and at most 100%, not "0%"
line 13: tenants.g.guarantee: 0.001% must be 0.01% to 100%
line 14: tenants.h.guarantee: 33.333% must be in steps of 0.01%`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	_, err = Parse([]byte(`
queues:
  sms: {partitions: 2, limits: [{name: tenant, per: [tenant], algorithm: leaky_bucket, rate: 100/s}]}
  email: {partitions: 2, limits: [{name: account, algorithm: leaky_bucket, rate: 100/s}]}
tenants:
  a: {guarantee: 20%}
`))
	want = "line 6: tenants.a.guarantee: partitions of queue email share account and cannot guarantee parts of it: leave it out, or give the tenant a weight"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// TestGuaranteeOfAValue: limits can be made without a file, and are checked by themselves.
func TestGuaranteeOfAValue(t *testing.T) {
	set := limits.Set{Tenants: map[string]limits.Tenant{"a": {Guarantee: -0.1}}}
	if err := set.Validate(); err == nil || err.Error() != "tenants.a.guarantee: -10% must be 0.01% to 100%" {
		t.Errorf("%v", err)
	}
}
