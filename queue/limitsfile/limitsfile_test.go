package limitsfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/sendwindow"
	"github.com/headgate/headgate/throttle"
)

func TestSampleFile(t *testing.T) {
	set, err := Load("../../limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Queues["email"].Limits) != 5 || len(set.Queues["webhook"].Limits) == 0 {
		t.Errorf("queues = %+v", set.Queues)
	}
}

// TestExamplesInSampleFile reads the sample with what is commented out in it.
func TestExamplesInSampleFile(t *testing.T) {
	text, err := os.ReadFile("../../limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	commentedOut := regexp.MustCompile(`(?m)^( +)# (( *)(- )?([a-z_-]+|"\*"):( .*)?)$`)
	set, err := Parse(commentedOut.ReplaceAll(text, []byte("$1$2")))
	if err != nil {
		t.Fatal(err)
	}
	email := set.Queues["email"]
	if email.MaxQueue == 0 || len(email.SendWindows) != 2 || len(email.Limits) != 7 ||
		len(set.Queues["ai"].Limits) != 4 || len(set.Queues["payment"].Limits) != 2 ||
		set.Tenants["initech"].SendWindow.IsZero() || set.Tenants["hooli"].SendWindow.IsZero() {
		t.Errorf("lacks an example: %+v", set)
	}
}

const good = `
queues:
  email:
    kinds: [email]
    limits:
      - {name: account, algorithm: leaky_bucket, rate: 300/s}
      - {name: tenant, per: [tenant], algorithm: token_bucket, rate: 10/s, burst: 20}
      - {name: daily, per: [tenant], algorithm: fixed_window, rate: 10000/day, timezone: Europe/Berlin}
      - {name: in-flight, per: [tenant], concurrency: 20}
    max_backlog: 1000
plans:
  gold: {weight: 2, limits: {email: {tenant: {rate: 100/s, burst: 200}}}}
tenants:
  acme: {plan: gold, weight: 3}
  globex: {plan: gold, limits: {email: {tenant: {burst: 50}}}}
  initech: {limits: {email: {tenant: {rate: 2/s}}}}
`

func TestParse(t *testing.T) {
	set, err := Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	email := set.Queues["email"]
	if email.MaxBacklog != 1000 || len(email.Limits) != 4 || email.Limits[2].Location.String() != "Europe/Berlin" || email.Limits[3].Concurrency != 20 {
		t.Errorf("email = %+v", email)
	}
	change := func(tenant string) limits.Change { return set.Tenants[tenant].Limits["email"]["tenant"] }
	if c := change("acme"); *c.Rate != throttle.PerSecond(100) || *c.Burst != 200 || set.Tenants["acme"].Weight != 3 {
		t.Errorf("acme: a plan, and a weight of its own: %+v", set.Tenants["acme"])
	}
	if c := change("globex"); *c.Rate != throttle.PerSecond(100) || *c.Burst != 50 || set.Tenants["globex"].Weight != 2 {
		t.Errorf("globex: its own burst over its plan's: %+v", set.Tenants["globex"])
	}
	if c := change("initech"); *c.Rate != throttle.PerSecond(2) || c.Burst != nil {
		t.Errorf("initech: %+v", c)
	}
}

func TestParseUnitsAndWindows(t *testing.T) {
	set, err := Parse([]byte(`queues:
  ai:
    kinds: [ai, ai.batch]
    limits:
      - {name: tokens, per: [tenant], algorithm: token_bucket, rate: 100000/min, unit: tokens, adaptive: true}
      - {name: calls, algorithm: leaky_bucket, rate: 50/s, adaptive: false}
    max_queue: 500000
    max_backlog_bytes: 64MiB
    max_queue_bytes: 5000000000
    max_retention: 48h
    durability: replicated
    send_windows:
      "*": Mon-Fri 09:00–18:00, Sat 10:00-14:00 Europe/Berlin
      ai.batch: 12:00-16:00 UTC
plans:
  quiet: {weight: 2, send_window: "Mon-Fri 08:00-20:00 America/New_York"}
tenants:
  acme: {plan: quiet}
  globex: {plan: quiet, send_window: "08:00-21:00 Asia/Kolkata"}
  initech: {weight: 3}
`))
	if err != nil {
		t.Fatal(err)
	}
	ai := set.Queues["ai"]
	if tokens := ai.Limits[0]; tokens.Unit != "tokens" || !tokens.Adaptive || ai.Limits[1].Unit != "" || ai.Limits[1].Adaptive {
		t.Errorf("limits = %+v", ai.Limits)
	}
	if ai.MaxQueue != 500000 || ai.MaxBacklog != 0 {
		t.Errorf("max_queue = %d, max_backlog = %d", ai.MaxQueue, ai.MaxBacklog)
	}
	if ai.MaxBacklogBytes != 64<<20 || ai.MaxQueueBytes != 5e9 || ai.MaxRetention != 48*time.Hour {
		t.Errorf("max_backlog_bytes = %d, max_queue_bytes = %d, max_retention = %v", ai.MaxBacklogBytes, ai.MaxQueueBytes, ai.MaxRetention)
	}
	if ai.Durability != limits.Replicated {
		t.Errorf("durability = %q", ai.Durability)
	}
	for what, window := range map[string]struct {
		got  sendwindow.Window
		want string
	}{
		"all kinds":        {ai.SendWindows[limits.AllKinds], "Mon-Fri 09:00-18:00, Sat 10:00-14:00 Europe/Berlin"},
		"one kind":         {ai.SendWindows["ai.batch"], "12:00-16:00 UTC"},
		"other kinds":      {ai.SendWindows["ai"], ""},
		"a plan's":         {set.Tenants["acme"].SendWindow, "Mon-Fri 08:00-20:00 America/New_York"},
		"over a plan's":    {set.Tenants["globex"].SendWindow, "08:00-21:00 Asia/Kolkata"},
		"without a window": {set.Tenants["initech"].SendWindow, ""},
	} {
		if window.got.String() != window.want {
			t.Errorf("%s: %q; want %q", what, window.got, window.want)
		}
	}
	if acme := set.Tenants["acme"]; acme.Weight != 2 {
		t.Errorf("acme = %+v; want its plan's weight as well", acme)
	}
}

func TestMistakesOfUnitsAndWindows(t *testing.T) {
	_, err := Parse([]byte(`queues:
  ai:
    kinds: [ai]
    limits:
      - {name: tokens, algorithm: token_bucket, rate: 1/s, unit: To kens, adaptive: on}
      - {name: in-flight, concurrency: 3, unit: tokens, adaptive: true}
      - {name: calls, algorithm: leaky_bucket, rate: 1/s, unit: [tokens]}
    max_queue: 0
    send_window: 09:00-18:00 UTC
  email:
    kinds: [email]
    limits:
      - {name: calls, algorithm: leaky_bucket, rate: 1/s, unit: To kens, per: [domain], adaptive: true}
    max_queue: many
    send_windows:
      "*": Mon-Fri 09:00-18:00
      emial: 09:00-18:00 UTC
      email: 09:00-25:00 UTC
      email: 09:00-18:00 UTC
  sms:
    send_windows: Mon-Fri 09:00-18:00 UTC
  fax:
    kind: [fax]
    send_windows: {fax: 09:00-18:00 UTC}
  post:
    kinds: [post, [letter]]
    send_windows: {letter: 09:00-18:00 UTC}
plans:
  quiet: {send_window: 09:00-18:00 Mars/Olympus}
tenants:
  acme: {plan: quiet, send_window: [09:00-18:00 UTC]}
  globex: {send_windows: 09:00-18:00 UTC}
  initech: {send_window: Mon-Fri 09:00-09:00 Local}
  umbrella: {send_window: ""}
`))
	want := `line 5: queues.ai.limits[0].adaptive: must be true or false, not "on"
line 6: queues.ai.limits[1].adaptive: only a limit with a rate adapts
line 6: queues.ai.limits[1].unit: a concurrency counts jobs, whatever they cost
line 7: queues.ai.limits[2].unit: must be a word, not a list
line 8: queues.ai.max_queue: 0 must be at least 1
line 9: queues.ai.send_window: unknown field; did you mean "send_windows"?
line 13: queues.email.limits[0].adaptive: only a limit of the whole queue, per tenant or per endpoint adapts, because answers concern nothing else: leave it out, or change per
line 13: queues.email.limits[0].unit: "To kens" must be 1 to 64 of a-z, 0-9 and '_'
line 14: queues.email.max_queue: must be a whole number, not "many"
line 16: queues.email.send_windows.*: "Mon-Fri 09:00-18:00": the time zone is missing at the end; write it like "Mon-Fri 09:00-18:00, Sat 10:00-14:00 Europe/Berlin"
line 17: queues.email.send_windows.emial: must be a kind of this queue, or "*" for all of them; did you mean "email"?
line 18: queues.email.send_windows.email: "09:00-25:00 UTC": "09:00-25:00" is not a range of hours such as 09:00-18:00; write it like "Mon-Fri 09:00-18:00, Sat 10:00-14:00 Europe/Berlin"
line 19: queues.email.send_windows.email: duplicate field, first on line 18
line 21: queues.sms.send_windows: must be a mapping such as {name: value}, not "Mon-Fri 09:00-18:00 UTC"
line 23: queues.fax.kind: unknown field; did you mean "kinds"?
line 26: queues.post.kinds[1]: must be a word, not a list
line 29: plans.quiet.send_window: "09:00-18:00 Mars/Olympus": "Mars/Olympus" is not a time zone such as Europe/Berlin or UTC; write it like "Mon-Fri 09:00-18:00, Sat 10:00-14:00 Europe/Berlin"
line 31: tenants.acme.send_window: must be a word, not a list
line 32: tenants.globex.send_windows: unknown field; did you mean "send_window"?
line 33: tenants.initech.send_window: "Mon-Fri 09:00-09:00 Local": Local is a different time zone on each machine; write it like "Mon-Fri 09:00-18:00, Sat 10:00-14:00 Europe/Berlin"
line 34: tenants.umbrella.send_window: "": it is empty; write it like "Mon-Fri 09:00-18:00, Sat 10:00-14:00 Europe/Berlin"`
	if got := fmt.Sprint(err); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	_, err := Parse([]byte(`queues:
  email:
    kind: [email]
    limits:
      - name: account
        algoritm: leaky_bucket
        rate: 300/x
      - name: tenant
        per: tenant
        algorithm: token_bucket
        rate: 10/s
        burst: 0
        timezone: Mars/Olympus
    max_backlog: many
    max_queue_bytes: 64 MB
    max_backlog_bytes: 99999999999GiB
    max_retention: 2 days
  email: {}
plans:
  gold: {limits: {email: {tenant: {rate: 1/s}}}, wieght: 3}
tenants:
  acme: {plan: glod, weight: 0}
  globex: &x {}
extra: 1
`))
	want := []string{
		`line 3: queues.email.kind: unknown field; did you mean "kinds"?`,
		`line 6: queues.email.limits[0].algoritm: unknown field; did you mean "algorithm"?`,
		`line 7: queues.email.limits[0].rate: "300/x": period "x"`,
		`line 9: queues.email.limits[1].per: must be a list`,
		`line 12: queues.email.limits[1].burst: 0 must be at least 1`,
		`line 13: queues.email.limits[1].timezone: "Mars/Olympus" must be a time zone`,
		`line 14: queues.email.max_backlog: must be a whole number`,
		`line 15: queues.email.max_queue_bytes: must be a number of bytes such as 500000 or 64MiB, not "64 MB"`,
		`line 16: queues.email.max_backlog_bytes: must be a number of bytes`,
		`line 17: queues.email.max_retention: must be a duration such as 24h or 30d, not "2 days"`,
		`line 18: queues.email: duplicate field`,
		`line 20: plans.gold.wieght: unknown field; did you mean "weight"?`,
		`line 22: tenants.acme.weight: 0 must be 0.001`,
		`line 22: tenants.acme.plan: unknown plan "glod"; did you mean "gold"?`,
		`line 23: tenants.globex: anchors and aliases are not supported`,
		`line 24: extra: unknown field`,
	}
	for _, line := range want {
		if err == nil || !strings.Contains(err.Error(), line) {
			t.Errorf("lacks %q in:\n%v", line, err)
		}
	}
}

// TestPlansNamedLikeFields: a plan that is not in the file is unknown also where its name looks like a field of another one.
func TestPlansNamedLikeFields(t *testing.T) {
	text := func(plan string) []byte {
		return []byte(strings.NewReplacer("plans:\n", "plans:\n  silver.limits: {weight: 2}\n", "plan: gold, weight: 3", "plan: "+plan).Replace(good))
	}
	for _, plan := range []string{"gold", "silver.limits"} {
		if _, err := Parse(text(plan)); err != nil {
			t.Errorf("%s: %v", plan, err)
		}
	}
	for _, plan := range []string{"gold.limits", "gold.limits.email"} {
		if _, err := Parse(text(plan)); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("tenants.acme.plan: unknown plan %q", plan)) {
			t.Errorf("%s: %v", plan, err)
		}
	}
}

func TestMistakesOfMeaningHaveLines(t *testing.T) {
	_, err := Parse([]byte(`queues:
  email:
    limits:
      - name: account
        algorithm: leaky_bucket
        rate: 300/s
        burst: 3
      - name: daily
        algorithm: fixed_window
        rate: 1/month
tenants:
  acme:
    limits:
      email:
        acount: {rate: 1/s}
        account: {rate: 1/s}
`))
	for _, line := range []string{
		"line 7: queues.email.limits[0].burst: only a token_bucket has one",
		"line 8: queues.email.limits[1].timezone: windows of a month need one",
		`line 15: tenants.acme.limits.email.acount: queue email has no limit of this name; did you mean "account"?`,
		"line 16: tenants.acme.limits.email.account: all tenants share this limit",
	} {
		if err == nil || !strings.Contains(err.Error(), line) {
			t.Errorf("lacks %q in:\n%v", line, err)
		}
	}
}

func TestMistakesOfMeaningComeWithTheOthers(t *testing.T) {
	_, err := Parse([]byte(`queues:
  email:
    kind: [email]
    limits:
      - {name: tenant, per: [tenant], algorithm: token_bucket, rat: 10/s}
      - {name: account, algorithm: leaky_bucket, rate: 1/s, burst: 3}
  hook:
    limits:
      - {name: tenant, per: [tenant], algorithm: token_bucket, rate: 10/s}
plans:
  gold: {limits: {hook: {tenant: {concurrency: 3}}}}
  "": {}
tenants:
  acme: {plan: gold}
  globex: {plan: gold, limits: {email: {tenant: {rate: 1/s}, tennant: {rate: 1/s}}}}
  initech: {limits: {hok: {tenant: {rate: 1/s}}, hook: {tenant: {rate: 0/s}}}}
  "a\nb": {}
  hooli: {plan: ""}
  umbrella: {limits: {hook: {tenant: {rate: !big 1/s}}}}
`))
	// No more than these: half a limit has no algorithm either, and that a plan
	// is wrong is not the fault of each tenant who has it.
	want := `line 3: queues.email.kind: unknown field; did you mean "kinds"?
line 5: queues.email.limits[0].rat: unknown field; did you mean "rate"?
line 6: queues.email.limits[1].burst: only a token_bucket has one; a leaky_bucket has a capacity
line 11: plans.gold.limits.hook.tenant.concurrency: this limit has a rate
line 12: plans.: name of a plan: it is empty
line 16: tenants.initech.limits.hok: unknown queue; did you mean "hook"?
line 16: tenants.initech.limits.hook.tenant.rate: "0/s": its count must be at least 1, not 0
line 17: tenants.a\nb: name of a tenant: "a\nb" has control characters
line 19: tenants.umbrella.limits.hook.tenant.rate: tag "!big": tags are not supported; remove it`
	if got := fmt.Sprint(err); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestUnreadableFiles(t *testing.T) {
	for what, text := range map[string]string{
		"empty":                "",
		"only a comment":       "# limits\n",
		"a list":               "- a\n",
		"not YAML":             "queues: [",
		"two documents":        "queues: {a: {}}\n---\nqueues: {a: {}}\n",
		"not UTF-8":            "queues: \xff\xfe",
		"binary":               "\x00\x01\x02",
		"an alias bomb":        "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n",
		"too large":            "queues: {a: {}} #" + strings.Repeat("x", maxBytes),
		"no queues":            "plans: {}\n",
		"an anchor around all": "&x\nqueues: {a: {}}\n",
		"a tag":                "queues: !!map {a: {}}\n",
		"deep nesting":         strings.Repeat("[", 100_000),
		"an empty time zone":   "queues: {a: {limits: [{name: x, algorithm: fixed_window, rate: 1/day, timezone: ''}]}}\n",
		"a merge of fields":    "queues:\n  a:\n    <<: {kinds: [x]}\n",
	} {
		set, err := Parse([]byte(text))
		problems, ok := errors.AsType[*Error](err)
		if !ok || len(problems.Problems) == 0 {
			t.Errorf("%s: %+v, %v; want an *Error", what, set, err)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("a folder was read")
	}
}

// TestLongNames: what is said of a file is not much longer than the file, however long the names in it are.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("x", 20_000)
	fields := strings.Repeat("a: 1, ", 1000)
	for _, text := range []string{
		"queues: {" + long + ": {" + fields + "}}",
		"queues: {q: {}}\ntenants: {" + long + ": {limits: {" + long + ": {" + fields + "}}}}",
		"queues: {q: {" + long + ": 1}}",
	} {
		_, err := Parse([]byte(text))
		if err == nil || len(err.Error()) > len(text) || !strings.Contains(err.Error(), "line ") || !strings.Contains(err.Error(), "a name of 20000 bytes; the maximum is 256") {
			t.Errorf("the error of a file of %d bytes has %d: %.200v", len(text), len(fmt.Sprint(err)), err)
		}
		problems, ok := errors.AsType[*Error](err)
		if !ok || len(problems.Problems) != 1 || len(problems.Problems[0].Path) > 300 {
			t.Errorf("%d problems, the first at a path of %d bytes; want one, of the name", len(problems.Problems), len(problems.Problems[0].Path))
		}
	}
}

// repeat returns a format's text for each of the numbers 0 to n-1.
func repeat(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// TestSmallFilesStaySmall: plans, budgets and mistakes do not make more of a small file than memory holds.
func TestSmallFilesStaySmall(t *testing.T) {
	const most = `tenants: with those of their plans and budgets, they have 1000500 changes of limits; the maximum is 1000000`
	for name, test := range map[string]struct {
		text, want string
		problems   int
	}{
		"a plan of many tenants": {
			"queues: {q: {}}\nplans: {p: {limits: {q: {" + repeat(500, "l%d: {burst: 1}, ") + "}}}}\ntenants: {" + repeat(2000, "t%d: {plan: p}, ") + "}", "line 3: " + most, 1,
		},
		"a budget of many queues": {
			"queues: {" + repeat(1000, "q%d: {}, ") + "}\nbudgets: [{name: b, rate: 1/day, per: [tenant], queues: [" + repeat(500, "q%d, ") + "]}]\n" +
				"tenants: {" + repeat(2001, "t%d: {budgets: {b: {rate: 2/day}}}, ") + "}", "line 3: " + most, 1,
		},
		"a mistake for each tenant and queue": {
			"queues: {" + repeat(300, "q%d: {partitions: 2}, ") + "}\ntenants: {" + repeat(300, "t%d: {partition: 3}, ") + "}", "tenants.t0.partition: 3: queue q0 has 2 partitions", 1000,
		},
	} {
		_, err := Parse([]byte(test.text))
		problems, ok := errors.AsType[*Error](err)
		if !ok || len(problems.Problems) != test.problems || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %d mistakes: %.300v", name, len(problems.Problems), err)
		}
	}
}

// TestFilesAreReadSoon: the time that a file takes grows with its size, and not with what its parts are multiplied.
func TestFilesAreReadSoon(t *testing.T) {
	// What a file of plain queues takes, on this machine and with these flags.
	plain := "queues: {" + repeat(50_000, "q%d: {}, ") + "}"
	parse := func(text string) (time.Duration, error) {
		began := time.Now()
		_, err := Parse([]byte(text))
		return time.Since(began), err
	}
	// The least of several times each: other programs may keep the processors busy.
	usual := time.Hour
	for range 3 {
		took, err := parse(plain)
		if err != nil {
			t.Fatal(err)
		}
		usual = min(usual, took)
	}
	for name, test := range map[string]struct {
		text string
		bad  bool
	}{
		"a budget of many queues": {"queues: {" + repeat(3000, "q%d: {}, ") + "}\nbudgets: [{name: b, rate: 1/day, queues: [" + repeat(3000, "q%d, ") + "]}]", false},
		"a budget of a tenant in many queues": {"queues: {" + repeat(3000, "q%d: {}, ") + "}\nbudgets: [{name: b, rate: 1/day, per: [tenant], queues: [" + repeat(3000, "q%d, ") + "]}]\n" +
			"tenants: {" + repeat(30, "t%d: {budgets: {b: {rate: 2/day}}}, ") + "}", false},
		"unknown queues of a budget":          {"queues: {" + repeat(10_000, "q%d: {}, ") + "}\nbudgets: [{name: b, rate: 1/day, queues: [" + repeat(50_000, "x%d, ") + "]}]", true},
		"many budgets of the same queues":     {"queues: {a: {}, b: {}}\nbudgets: [" + repeat(8_000, "{name: b, rate: %d/s, queues: [a, b]}, ") + "]", true},
		"many budgets":                        {"queues: {" + repeat(10_000, "q%d: {}, ") + "}\nbudgets: [" + repeat(8_000, "{name: b%[1]d, rate: 1/s, queues: [q%[1]d, q0]}, ") + "]", true},
		"unknown budgets":                     {"queues: {a: {}, b: {}}\nbudgets: [" + repeat(5_000, "{name: b%d, rate: 1/s, queues: [a, b]}, ") + "]\ntenants: {t: {budgets: {" + repeat(5_000, "c%d: {rate: 1/s}, ") + "}}}", true},
		"reserves of many tenants":            {"queues: {" + repeat(2_500, "q%d: {limits: [{name: x, algorithm: token_bucket, rate: 9/s, burst: 9, reserve: {direct: 20%%}}]}, ") + "}\ntenants: {" + repeat(20_000, "t%d: {}, ") + "}", false},
		"unknown plans of many tenants":       {"queues: {q: {}}\nplans: {" + repeat(12_500, "p%d: {}, ") + "}\ntenants: {" + repeat(12_500, "t%d: {plan: x%[1]d}, ") + "}", true},
		"changes of unknown queues":           {"queues: {" + repeat(12_500, "q%d: {}, ") + "}\ntenants: {t: {limits: {" + repeat(12_500, "x%d: {x: {burst: 1}}, ") + "}}}", true},
		"changes of a queue with many limits": {"queues: {q: {limits: [" + repeat(5_000, "{name: x%d, algorithm: token_bucket, rate: 9/s, per: [tenant]}, ") + "]}}\nplans: {p: {limits: {q: {" + repeat(100, "x49%02d: {burst: 2}, ") + "}}}}\ntenants: {" + repeat(4_500, "t%d: {plan: p}, ") + "}", true},
		"tenants of many partitions":          {"queues: {" + repeat(10_000, "q%d: {partitions: 2}, ") + "}\ntenants: {" + repeat(10_000, "t%d: {partition: 2}, ") + "}", false},
		"windows of many kinds":               {"queues: {q: {kinds: [" + repeat(10_000, "k%d, ") + "], send_windows: {" + repeat(8_000, "x%d: 'mon-fri 09:00-17:00 UTC', ") + "}}}", true},
	} {
		t.Run(name, func(t *testing.T) {
			took, err := parse(test.text)
			for tries := 1; took > 12*usual && tries < 3; tries++ {
				again, _ := parse(test.text)
				took = min(took, again)
			}
			if (err != nil) != test.bad || len(test.text) > len(plain) || took > 12*usual {
				t.Errorf("a file of %d bytes took %v, and a plain one of %d bytes %v: %.300v", len(test.text), took, len(plain), usual, err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("queues: {a: {limits: [{name: x, per: [tenant], concurrency: 1}]}}"))
	f.Add([]byte("queues: {a: {kinds: [k], limits: [{name: x, algorithm: leaky_bucket, rate: 1/s, unit: u, adaptive: true}], " +
		"max_queue: 9, send_windows: {'*': 22:00-06:00 UTC, k: Mon 09:00-18:00 UTC}}}\ntenants: {t: {send_window: 09:00-18:00 UTC}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := Parse(data)
		if err == nil {
			err = set.Validate()
			if err != nil {
				t.Errorf("accepted what Validate refuses: %v", err)
			}
		}
	})
}

// TestDurabilityIsOneOfTwoWords: any other value is one mistake, which names the field and both words.
func TestDurabilityIsOneOfTwoWords(t *testing.T) {
	for value, got := range map[string]string{
		`Replicated`:                  `"Replicated" must be primary or replicated; did you mean "replicated"?`,
		`quorum`:                      `"quorum" must be primary or replicated`,
		`true`:                        `"true" must be primary or replicated`,
		`1`:                           `"1" must be primary or replicated`,
		`"replicated "`:               `"replicated " must be primary or replicated; did you mean "replicated"?`,
		`"\u0000\e[31m"`:              `"\x00\x1b[31m" must be primary or replicated`,
		strings.Repeat("primary", 10): `"` + strings.Repeat("primary", 10)[:60] + `…" must be primary or replicated`,
		``:                            `must be primary or replicated, not nothing`,
		`null`:                        `must be primary or replicated, not nothing`,
		`""`:                          `must be primary or replicated, not ""`,
		`[replicated]`:                `must be primary or replicated, not a list`,
		`{replicas: 1}`:               `must be primary or replicated, not fields`,
		`!!binary cmVwbGljYXRlZA==`:   `tag "!!binary": tags are not supported; remove it`,
		`&a replicated`:               `anchors and aliases are not supported; write the value out`,
	} {
		_, err := Parse([]byte("queues:\n  email:\n    kinds: [email]\n    durability: " + value + "\n"))
		if want := "line 4: queues.email.durability: " + got; err == nil || err.Error() != want {
			t.Errorf("durability: %s: %v\nwant %s", value, err, want)
		}
	}
	set, err := Parse([]byte("queues: {a: {durability: primary}, b: {durability: 'replicated'}, c: {}}"))
	if err != nil || set.Queues["a"].Durability != limits.Primary || set.Queues["b"].Durability != limits.Replicated || set.Queues["c"].Durability != "" {
		t.Errorf("%+v, %v", set.Queues, err)
	}
}
