package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestStoppedIsSaid: whoever sends a job or asks for one learns that no worker takes
// it, or who paused it.
func TestStoppedIsSaid(t *testing.T) {
	url, client := own(t) // whose queue has workers for call, webhook and email
	publishEmpty(t, client, "nobodys")
	says := func(args []string, wants ...string) {
		t.Helper()
		out, errText, code := enqueue(t, "", append(args, "--redis", url)...)
		for _, want := range append(wants, "") {
			if code != exitOK || !strings.Contains(out, want) {
				t.Errorf("%v: %q %q %d\nwant %s", args, out, errText, code, want)
			}
		}
	}
	nobody := "no worker serves queue nobodys"
	says([]string{"send", "--queue", "nobodys", "--kind", "other", "--tenant", "acme", "--payload", "{}"}, "(waiting in its lane); "+nobody+"\n")
	says([]string{"send", "--queue", "nobodys", "--kind", "other", "--tenant", "acme", "--payload", "{}", "--json"}, `"unserved":"`+nobody+`"`)
	says([]string{"status", "--queue", "nobodys"}, nobody)
	says([]string{"status", "--queue", "nobodys", "--json"}, `"unserved":["`+nobody+`"]`)
	says([]string{"estimate", "--queue", "nobodys", "--tenant", "acme", "--kind", "other", "--jobs", "3", "--json"}, `"unserved":"`+nobody+`"`)

	says([]string{"send", "--kind", "call", "--tenant", "acme", "--payload", "{}", "--key", "1"}, "acme:1 in queue calls (waiting in its lane)\n")
	says([]string{"pause", "--queue", "calls", "--tenant", "acme", "--for", "1h", "--actor", "ann", "--reason", "bounces, ticket 4711", "--yes"})
	says([]string{"status", "--queue", "calls"}, "paused by cli:ann until ", ": bounces, ticket 4711")
	says([]string{"tenants", "--queue", "calls"}, "by cli:ann until ", ": bounces, ticket 4711")
	says([]string{"explain", "acme:1", "--queue", "calls"}, "tenant acme is paused by cli:ann until ", ": bounces, ticket 4711; ")
	says([]string{"estimate", "--queue", "calls", "--tenant", "acme", "--kind", "call", "--jobs", "3"}, "tenant acme is paused by cli:ann until ")
	says([]string{"estimate", "--queue", "calls", "--tenant", "acme", "--kind", "call", "--jobs", "3", "--json"}, `"pause":{`, `"reason":"cli:ann: bounces`)
	out, errText, code := enqueue(t, "", "tenants", "--queue", "calls", "--json", "--redis", url)
	var all struct {
		Tenants []struct {
			HeldBy   any `json:"held_by"`
			Unserved string
			Pause    any
		}
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all.Tenants) != 1 {
		t.Fatalf("%s %s %d, %v", out, errText, code, err)
	}
	if one := all.Tenants[0]; one.HeldBy != nil || one.Unserved != "" || one.Pause == nil {
		t.Errorf("%s", out)
	}
}
