package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestStatusShowsFaults: what scripts could not understand is shown with what to do,
// and does nothing to a terminal.
func TestStatusShowsFaults(t *testing.T) {
	url, client := own(t)
	if out, _, code := enqueue(t, "", "status", "--redis", url); code != exitOK || strings.Contains(out, "fault") {
		t.Fatalf("without any: %s, exit %d", out, code)
	}
	client.HSet(t.Context(), "headgate:{calls}:faults",
		"job 17", "1700000000000001 WRONGTYPE it is a list",
		"lane \x1b[2J\u202eacme\xff", "1700000000000002 a field \x9b31m is\r\nno number",
	)
	out, errText, code := enqueue(t, "", "status", "--redis", url)
	for _, want := range []string{"2 faults", "job 17", "2023-11-1", "WRONGTYPE it is a list", "lane", `\u202e`, "no number", "Repair or delete"} {
		if !strings.Contains(out, want) {
			t.Errorf("lacks %q: %s %s exit %d", want, out, errText, code)
		}
	}
	if strings.ContainsAny(out, "\x1b\u202e\u009b\r") {
		t.Errorf("it writes to the terminal: %q", out)
	}
	out, _, _ = enqueue(t, "", "status", "--redis", url, "--json")
	var all struct {
		Queues []struct {
			Faults []struct {
				What string
				At   time.Time
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all.Queues) != 1 || len(all.Queues[0].Faults) != 2 ||
		all.Queues[0].Faults[0].What != "job 17" || all.Queues[0].Faults[0].At.Unix() != 1700000000 {
		t.Errorf("%s, %v", out, err)
	}

	// They are shown also where the queue cannot be read because of them.
	if _, errText, code := enqueue(t, "", "send", "--redis", url, "--kind", "call", "--tenant", "acme", "--payload", "1"); code != exitOK {
		t.Fatal(errText)
	}
	client.Set(t.Context(), "asynq:{calls}:retry", "x", 0)
	out, errText, code = enqueue(t, "", "status", "--redis", url)
	if code == exitOK || !strings.Contains(errText, "WRONGTYPE") || !strings.Contains(out, "job 17") {
		t.Errorf("%s %s exit %d", out, errText, code)
	}
}

func TestPrintable(t *testing.T) {
	for name, want := range map[string]string{"acme": "acme", "日本": "日本", "a\x9b1m": `"a\x9b1m"`, "a\u202eb": `"a\u202eb"`, "a\nb": `"a\nb"`} {
		if got := printable(name); got != want {
			t.Errorf("%q is printed as %s; want %s", name, got, want)
		}
	}
}
