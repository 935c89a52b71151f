package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/queue"
)

func TestExplain(t *testing.T) {
	url, client := own(t)
	c := queue.NewClient(client)
	var id string
	for range 120 {
		r, err := c.Enqueue(t.Context(), queue.Job{Kind: "email", Tenant: "acme", Payload: struct{}{}})
		if err != nil {
			t.Fatal(err)
		}
		id = r.ID
	}
	out, errText, code := enqueue(t, "", "explain", id, "--redis", url, "--queue", "calls")
	if code != exitOK || !strings.HasPrefix(out, `acme's email is held by limit "tenant" (10/s), next slot now, 119 before it, goes at `) ||
		!strings.Contains(out, "(steady), 120 waiting, done at ") || strings.Count(out, "\n") != 1 {
		t.Errorf("%q %q %d", out, errText, code)
	}
	out, errText, code = enqueue(t, "", "explain", id, "--redis", url, "--queue", "calls", "--json")
	var e struct {
		State      string
		Position   *int64
		HeldBy     struct{ Limit string } `json:"held_by"`
		ExpectedAt time.Time              `json:"expected_at"`
		Text       string
	}
	// A full bucket of 20, and then 10 a second.
	if err := json.Unmarshal([]byte(out), &e); err != nil || code != exitOK || e.State != "waiting" || e.Position == nil || *e.Position != 119 ||
		e.HeldBy.Limit != "tenant" || e.ExpectedAt.IsZero() || time.Until(e.ExpectedAt) > 10*time.Second || e.Text == "" {
		t.Errorf("%s %q %d, %v", out, errText, code, err)
	}
	out, errText, code = enqueue(t, "", "explain", "nobody\x1b[2J", "--redis", url, "--queue", "calls")
	if code != exitFailure || out != "" || !strings.HasSuffix(errText, "no such job") || strings.Contains(errText, "\x1b") {
		t.Errorf("%q %q %d", out, errText, code)
	}
	for want, args := range map[string][]string{
		"one job id":             {"explain", "--queue", "calls"},
		`did you mean "calls"?`:  {"explain", id, "--queue", "cals"},
		"tenant: it is empty":    {"estimate", "--queue", "calls", "--jobs", "5"},
		"jobs: 0 must be":        {"estimate", "--queue", "calls", "--tenant", "a"},
		"cost: 0":                {"estimate", "--queue", "calls", "--tenant", "a", "--jobs", "1", "--cost", "0"},
		"cost: -1":               {"estimate", "--queue", "calls", "--tenant", "a", "--jobs", "1", "--cost", "-1"},
		"is not name=value":      {"estimate", "--queue", "calls", "--tenant", "a", "--jobs", "1", "--attribute", "x"},
		"cost: 21 is more than ": {"estimate", "--queue", "calls", "--tenant", "a", "--jobs", "1", "--kind", "call", "--cost", "21"},
		"set one of call":        {"estimate", "--queue", "calls", "--tenant", "a", "--jobs", "1"},
	} {
		if out, errText, code := enqueue(t, "", append(args, "--redis", url)...); code != exitUsage || !strings.Contains(errText, want) || out != "" {
			t.Errorf("%v: %q %q %d", args, out, errText, code)
		}
	}
}

func TestEstimate(t *testing.T) {
	url, _ := own(t)
	out, errText, code := enqueue(t, "", "estimate", "--redis", url, "--queue", "calls", "--tenant", "acme", "--jobs", "620", "--cost", "2", "--kind", "email", "--json")
	var e struct {
		First      time.Time              `json:"first"`
		Last       time.Time              `json:"last"`
		HeldBy     struct{ Limit string } `json:"held_by"`
		Confidence string
	}
	if err := json.Unmarshal([]byte(out), &e); err != nil || code != exitOK || e.First.IsZero() || e.Confidence != "steady" ||
		e.Last.Sub(e.First).Round(time.Second) != 122*time.Second || e.HeldBy.Limit != "tenant" {
		t.Errorf("%s %q %d, %v", out, errText, code, err)
	}
	out, errText, code = enqueue(t, "", "estimate", "--redis", url, "--queue", "calls", "--tenant", "acme", "--kind", "call", "--jobs", "50000")
	if code != exitOK || !strings.HasPrefix(out, "first call now, last call at ") || !strings.Contains(out, `held by limit "tenant" (10/s)`) {
		t.Errorf("%q %q %d", out, errText, code)
	}
}

// As JSON, the estimate is that of the text: without a payload the batch goes where most jobs wait.
func TestEstimateWithoutPayload(t *testing.T) {
	url, client := own(t)
	c := queue.NewClient(client)
	for range 3 {
		if _, err := c.Enqueue(t.Context(), queue.Job{Kind: "webhook", Tenant: "acme", Payload: json.RawMessage(`{"url":"https://hooks.example.com/"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	batch := []string{"estimate", "--redis", url, "--queue", "calls", "--tenant", "acme", "--kind", "webhook", "--jobs", "100"}
	for name, payload := range map[string][]string{"none": nil, "null": {"--payload", "null"}} {
		args := append(slices.Clone(batch), payload...)
		if out, errText, code := enqueue(t, "", args...); code != exitOK || !strings.Contains(out, " 3 waiting before them") {
			t.Errorf("payload %s: %q %q %d", name, out, errText, code)
		}
		if out, errText, code := enqueue(t, "", append(args, "--json")...); code != exitOK || !strings.Contains(out, `"waiting":3`) {
			t.Errorf("payload %s, as JSON: %q %q %d", name, out, errText, code)
		}
	}
}
