package limitsfile

import "testing"

const grouped = `
queues:
  email:
    limits:
      - {name: group, per: [group], algorithm: token_bucket, rate: 10/s, burst: 5}
      - {name: tenant, per: [tenant], algorithm: leaky_bucket, rate: 3/s}
`

func TestGroups(t *testing.T) {
	set, err := Parse([]byte(grouped + `
groups:
  reseller: {limits: {email: {group: {rate: 50/s}}}}
  others: {}
plans:
  resold: {group: reseller, weight: 2}
tenants:
  acme: {plan: resold}
  globex: {plan: resold, group: others}
`))
	if err != nil {
		t.Fatal(err)
	}
	if a, g := set.Tenants["acme"], set.Tenants["globex"]; a.Group != "reseller" || g.Group != "others" || set.Groups["reseller"].Limits["email"]["group"].String() != "rate 50/s" {
		t.Errorf("read %+v", set)
	}
	text, err := Format(set)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(text)
	if err != nil || again.Tenants["acme"].Group != "reseller" || again.Tenants["globex"].Group != "others" || again.Groups["reseller"].Limits["email"]["group"].String() != "rate 50/s" || len(again.Groups) != 2 {
		t.Errorf("%+v, %v; written as\n%s", again, err, text)
	}
}

func TestGroupMistakes(t *testing.T) {
	_, err := Parse([]byte(grouped + `
groups:
  reseller: {limits: {email: {tenant: {rate: 50/s}, group: {burst: -1}, grup: {rate: 1/s}}, sms: {}}}
  large: {weight: 3}
tenants:
  acme: {group: reseler}
  globex: {group: large, limits: {email: {group: {rate: 7/s}}}}
`))
	want := `line 9: groups.reseller.limits.email.group.burst: -1 must be at least 1
line 9: groups.reseller.limits.email.grup: queue email has no limit of this name; did you mean "group"?
line 9: groups.reseller.limits.email.tenant: this limit is not per group, so it cannot differ for a group
line 9: groups.reseller.limits.sms: unknown queue
line 10: groups.large.weight: unknown field
line 12: tenants.acme.group: unknown group "reseler"; did you mean "reseller"?
line 13: tenants.globex.limits.email.group: the tenants of a group share this limit: change it for the group, in the limits file`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}
