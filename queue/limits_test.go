package queue

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/sendwindow"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

func TestLimitsValidate(t *testing.T) {
	rate := throttle.PerSecond(5)
	bad := limits.Set{
		Queues: map[string]limits.Queue{
			"email": {
				Kinds:      []string{"email", "{}"},
				MaxBacklog: -1,
				MaxQueue:   -2,
				SendWindows: map[string]sendwindow.Window{
					limits.AllKinds: sendHours(t, "09:00-18:00 UTC"), "email": sendHours(t, "10:00-11:00 UTC"), "emial": sendHours(t, "10:00-11:00 UTC"),
				},
				Limits: []limits.Limit{
					{Name: "account", Algorithm: throttle.LeakyBucket, Rate: rate},
					{Name: "account", Algorithm: "sliding", Rate: rate},
					{Name: "tenant", Algorithm: throttle.TokenBucket, Burst: -1, Per: []string{"tenant", "tenant", "{}"}},
					{Name: "both", Algorithm: throttle.TokenBucket, Rate: rate, Concurrency: 3},
					{Name: "tokens", Algorithm: throttle.TokenBucket, Rate: rate, Unit: "{tokens}", Adaptive: true},
					{Name: "in-flight", Algorithm: throttle.Concurrency, Concurrency: 3, Unit: "tokens", Adaptive: true},
				},
			},
			"sms": {Kinds: []string{"email"}},
		},
		Tenants: map[string]limits.Tenant{
			"acme": {Weight: -1, Limits: map[string]map[string]limits.Change{
				"emial": {"tenant": {Rate: &rate}},
				"email": {"acount": {Rate: &rate}, "account": {Rate: &rate}},
			}},
		},
	}
	err := bad.Validate()
	for _, want := range []string{
		`queues.email.kinds[1]: "{}" must be 1 to 64`,
		`queues.email.max_backlog: -1 must not be negative`,
		`queues.email.max_queue: -2 must not be negative`,
		`queues.email.send_windows.emial: must be a kind of this queue, or "*" for all of them; did you mean "email"?`,
		`queues.email.limits[4].unit: "{tokens}" must be 1 to 64`,
		`queues.email.limits[5].unit: a concurrency counts jobs`,
		`queues.email.limits[5].adaptive: only a limit with a rate adapts`,
		`queues.email.limits[1].name: "account" is the name of another limit`,
		`queues.email.limits[1].algorithm: "sliding" must be token_bucket, leaky_bucket`,
		`queues.email.limits[2].rate: required: COUNT/PERIOD, such as 300/s`,
		`queues.email.limits[2].burst: -1 must not be negative`,
		`queues.email.limits[2].per: "tenant" must not be listed twice`,
		`queues.email.limits[3].concurrency: a limit has a rate or a concurrency, not both`,
		`queues.sms.kinds[0]: "email" already belongs to queue email`,
		`tenants.acme.weight: -1 must be 0.001`,
		`tenants.acme.limits.emial: unknown queue; did you mean "email"?`,
		`tenants.acme.limits.email.acount: queue email has no limit of this name; did you mean "account"?`,
		`tenants.acme.limits.email.account: all tenants share this limit`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Validate lacks %q; it says:\n%v", want, err)
		}
	}
	if n := strings.Count(fmt.Sprint(err), "send_windows"); n != 1 {
		t.Errorf("%d mistakes of send windows, want 1:\n%v", n, err)
	}
	for _, err := range validation.Unjoin(err) {
		if _, ok := errors.AsType[*validation.Error](err); !ok {
			t.Errorf("%v is no *InvalidError", err)
		}
	}
}

func TestStoredLimitsComeBack(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []limits.Limit{
		perTenant(7), sharedBy(300),
		{Name: "daily", Algorithm: throttle.FixedWindow, Rate: throttle.Rate{Count: 10000, Period: 24 * time.Hour}, Location: berlin, Per: []string{"tenant"}},
		{Name: "in-flight", Algorithm: throttle.Concurrency, Concurrency: 20, Per: []string{"domain", "tenant"}},
	} {
		if err := limit.Validate(); err != nil {
			t.Errorf("%s: %v", limit.Name, err)
		}
		back, err := effective.Store(limit).Decode()
		if err != nil || effective.Store(back).Spec != effective.Store(limit).Spec || back.Rate != limit.Rate || back.Concurrency != limit.Concurrency ||
			back.Location.String() != limit.Location.String() {
			t.Errorf("%+v came back as %+v, %v", limit, back, err)
		}
	}
}

func TestParseRedisURL(t *testing.T) {
	good := map[string]string{
		"redis://localhost":                  "localhost:6379",
		"redis://u:p%40ss@h:7/3":             "h:7",
		"rediss://h":                         "h:6379",
		"unix:///run/redis.sock?db=2":        "/run/redis.sock",
		"redis+sentinel://s1,s2:27/main/1":   "s1:26379 s2:27",
		"rediss+cluster://:secret@c1:1,c2:2": "c1:1 c2:2",
		"redis://[::1]:6380":                 "[::1]:6380",
	}
	for text, addrs := range good {
		options, err := ParseRedisURL(text)
		if err != nil || strings.Join(options.Addrs, " ") != addrs {
			t.Errorf("%s: %v, %v; want %s", text, options, err, addrs)
		}
	}
	if options, _ := ParseRedisURL("redis://u:p%40ss@h:7/3"); options.Username != "u" || options.Password != "p@ss" || options.DB != 3 {
		t.Errorf("credentials: %+v", options)
	}
	for _, text := range []string{
		"", "localhost:6379", "http://h", "redis://", "redis://h:0", "redis://h:port", "redis://h/x", "redis://h/-1",
		"redis://a,b", "redis+sentinel://h", "redis+cluster://h/1", "redis+x://h", "unix://relative", "redis://h?password=secret", "redis://u:%zz@h",
	} {
		options, err := ParseRedisURL(text)
		if err == nil {
			t.Errorf("%q: %+v; want an error", text, options)
		} else if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "%zz") {
			t.Errorf("%q: the error tells the password: %v", text, err)
		}
	}
}

func sendHours(t *testing.T, text string) sendwindow.Window {
	t.Helper()
	w, err := sendwindow.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWindowsOfOneKindThatNeverMeet(t *testing.T) {
	all := sendHours(t, "Mon-Fri 09:00-18:00 Europe/Berlin")
	for own, want := range map[string]string{
		"Fri,Sat 17:59-23:00 Europe/Berlin": "<nil>",
		"Fri,Sat 18:00-23:00 Europe/Berlin": "queues.email.send_windows.email: never open at the same time as the window of \"*\", and jobs need both",
	} {
		limits := limits.Set{Queues: map[string]limits.Queue{"email": {
			Kinds: []string{"email"}, SendWindows: map[string]sendwindow.Window{limits.AllKinds: all, "email": sendHours(t, own)},
		}}}
		if got := fmt.Sprint(limits.Validate()); got != want {
			t.Errorf("%s and %s: %s; want %s", all, own, got, want)
		}
	}
}
