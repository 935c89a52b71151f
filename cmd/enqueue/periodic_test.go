package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/operate"
)

func TestPeriodic(t *testing.T) {
	url, client := own(t)
	periodic := func(args ...string) (out, errText string, code int) {
		t.Helper()
		if args[0] != "list" {
			args = append(args, "--reason", "a test", "--actor", "ann")
		}
		return enqueue(t, "", append([]string{"periodic", "--redis", url}, args...)...)
	}
	list := func() (entries []periodicJSON) {
		t.Helper()
		out, errText, code := periodic("list", "--json")
		if err := json.Unmarshal([]byte(out), &entries); err != nil || code != exitOK {
			t.Fatalf("%q %q %d", out, errText, code)
		}
		return entries
	}
	if entries := list(); len(entries) != 0 {
		t.Errorf("%+v", entries)
	}
	add := []string{"add", "report", "--spec", "30 7 * * mon-fri", "--zone", "Europe/Berlin", "--kind", "call", "--tenant", "acme", "--payload", `{"n":1}`,
		"--max-late", "2h", "--cost", "2", "--attribute", "a=b", "--priority", "low", "--max-attempts", "3"}
	out, errText, code := periodic(add...)
	if code != exitOK || !strings.Contains(out, "report  30 7 * * mon-fri  Europe/Berlin  call  acme") {
		t.Errorf("add: %q %q %d", out, errText, code)
	}
	if _, errText, code := periodic("add", "\u202eodd", "--spec", "@every 90s", "--kind", "call", "--tenant", "a", "--payload", "1", "--paused"); code != exitOK {
		t.Error(errText)
	}
	out, _, _ = periodic("list")
	if !strings.Contains(out, `"\u202eodd"`) || !strings.Contains(out, "paused") || !strings.Contains(out, "report") {
		t.Errorf("list: %s", out)
	}
	entries := list()
	if len(entries) != 2 || entries[0].ID != "report" || entries[0].Next == nil || time.Until(*entries[0].Next) > 80*time.Hour || entries[0].LastFired != nil ||
		entries[0].MaxLate != "2h0m0s" || string(entries[0].Payload) != `{"n":1}` || !entries[1].Paused || entries[1].Next != nil {
		t.Errorf("list: %+v", entries)
	}
	if out, errText, code := periodic("pause", "report"); code != exitOK || out != "report paused\n" || !list()[0].Paused {
		t.Errorf("pause: %q %q %d", out, errText, code)
	}
	if out, errText, code := periodic("pause", "report"); code != exitOK || out != "report was paused already\n" {
		t.Errorf("pause again: %q %q %d", out, errText, code)
	}
	if out, errText, code := periodic("resume", "report", "\u202eodd"); code != exitOK || list()[0].Paused || list()[1].Paused {
		t.Errorf("resume: %q %q %d", out, errText, code)
	}
	if _, errText, code := periodic("remove", "reprot"); code != exitUsage || !strings.Contains(errText, `there is no periodic job "reprot"; did you mean "report"?`) {
		t.Errorf("remove: %q %d", errText, code)
	}
	if out, errText, code := periodic("remove", "reprot", "report", "--json"); code != exitPartial || out != `{"removed":["report"]}`+"\n" || len(list()) != 1 || !strings.Contains(errText, `"reprot"`) {
		t.Errorf("remove: %q %q %d", out, errText, code)
	}
	if entries := list(); len(entries) != 1 || entries[0].Overlap != queue.OverlapSkip || entries[0].Skipped != 0 || entries[0].LastSkipped != nil {
		t.Errorf("list: %+v; want overlap skip, and no tick skipped", entries)
	}
	if _, errText, code := periodic(add...); code != exitOK {
		t.Error(errText)
	}
	if _, errText, code := periodic(add...); code != exitOK { // changes nothing
		t.Error(errText)
	}
	var actions []string
	audit, err := operate.Audit(t.Context(), client, "calls", 20)
	for _, entry := range audit[:max(len(audit)-1, 0)] { // the oldest is the publication of the limits
		actions = append(actions, entry.Action+" "+entry.ID)
		if entry.Actor != "cli:ann" || entry.Reason != "a test" || entry.Kind != "call" {
			t.Errorf("audit: %+v", entry)
		}
	}
	slices.Reverse(actions)
	if want := []string{
		"periodic add report", "periodic add \u202eodd", "periodic pause report", "periodic resume report", "periodic resume \u202eodd", "periodic remove report", "periodic add report",
	}; err != nil || !slices.Equal(actions, want) {
		t.Errorf("audit: %q, %v; want %q", actions, err, want)
	}
	if out, errText, code := periodic("remove", "report"); code != exitOK {
		t.Errorf("remove: %q %q %d", out, errText, code)
	}
	if out, errText, code := enqueue(t, "", "periodic", "--redis", url, "pause", "\u202eodd"); code != exitUsage || !strings.Contains(errText, "--reason: ") {
		t.Errorf("pause without a reason: %q %q %d", out, errText, code)
	}
	if out, errText, code := periodic("add", "digest", "--spec", "@hourly", "--zone", "UTC", "--kind", "call", "--tenant", "acme", "--payload", "1", "--overlap", "replace"); code != exitOK || !strings.Contains(out, "replace") {
		t.Errorf("add: %q %q %d", out, errText, code)
	}
	client.Set(t.Context(), "headgate:{calls}:tick:digest", "an-id 1700000000 11 1700000660", 0)
	if out, _, _ := periodic("list"); !strings.Contains(out, "11, last "+time.Unix(1700000660, 0).Format(time.DateTime)) {
		t.Errorf("list does not show the skipped ticks: %s", out)
	}
	if entries := list(); len(entries) != 2 || entries[0].ID != "digest" || entries[0].Skipped != 11 || entries[0].LastSkipped.Unix() != 1700000660 || entries[0].LastFired.Unix() != 1700000000 {
		t.Errorf("list: %+v; want 11 skipped ticks", entries)
	}
	client.HSet(t.Context(), "headgate:periodic", "broken", "{")
	if out, _, code := periodic("list"); code != exitOK || !strings.Contains(out, "broken") || !strings.Contains(out, "unreadable: ") {
		t.Errorf("list: %q", out)
	}
}

func TestHostilePeriodic(t *testing.T) {
	url, _ := own(t)
	tests := map[string]struct {
		args []string
		want string
	}{
		"no spec":           {[]string{"--spec", ""}, "spec: it is empty"},
		"never":             {[]string{"--spec", "0 0 30 2 *"}, "no tick in the next five years"},
		"no zone":           {[]string{"--zone", ""}, "zone: it is required; write a name such as Europe/Berlin"},
		"unknown zone":      {[]string{"--zone", "Mars"}, `zone: "Mars" is not a time zone`},
		"overlap":           {[]string{"--overlap", "forbid"}, `overlap: "forbid" is not skip, queue or replace`},
		"late":              {[]string{"--max-late", "1ms"}, "max_late: "},
		"no tenant":         {[]string{"--tenant", ""}, "job.tenant: it is empty"},
		"unknown kind":      {[]string{"--kind", "cal"}, `did you mean "call"?`},
		"no payload":        {[]string{"--payload", ""}, "payload: it is missing"},
		"not JSON":          {[]string{"--payload", "{"}, "--payload: "},
		"a webhook's":       {[]string{"--kind", "webhook", "--payload", "{}"}, "payload.url: it is empty"},
		"two ids":           {[]string{"y"}, "takes one id"},
		"cost 0":            {[]string{"--cost", "0"}, "cost: 0"},
		"a key":             {[]string{"--key", "k"}, "unknown flag: --key"},
		"attribute, no '='": {[]string{"--attribute", "x"}, "attribute"},
	}
	for what, test := range tests {
		t.Run(what, func(t *testing.T) {
			args := append([]string{"periodic", "--redis", url, "add", "x", "--spec", "@daily", "--zone", "UTC", "--kind", "call", "--tenant", "a", "--payload", "1", "--reason", "a test"}, test.args...)
			out, errText, code := enqueue(t, "", args...)
			if code != exitUsage || !strings.Contains(errText, test.want) || strings.Contains(errText, "\n") || out != "" {
				t.Errorf("%q, %q, exit %d; want 2 and one line with %q", out, errText, code, test.want)
			}
		})
	}
	for _, args := range [][]string{{"add"}, {"remove"}, {"pause"}, {"resume"}, {"lst"}, {"list", "x"}} {
		if _, errText, code := enqueue(t, "", append([]string{"periodic"}, args...)...); code != exitUsage {
			t.Errorf("%v: %q, exit %d", args, errText, code)
		}
	}
	if out, _, code := enqueue(t, "", "periodic"); code != exitOK || !strings.Contains(out, "repeated hour") || !strings.Contains(out, "resume") {
		t.Errorf("help: %q %d", out, code)
	}
}
