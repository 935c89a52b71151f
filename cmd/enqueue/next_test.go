package main

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/queue"
)

func TestLinesWithFollowUps(t *testing.T) {
	const success = `{"kind":"b", "tenant":"t2","in":"90s","payload":{"x": "<&>"},"on_failure":{"kind":"c","payload":3,"callback":"https://y/"}}`
	fromJSON, err := parseLine([]byte(`{"kind":"a","tenant":"t","payload":1,"on_success":` + success + `,"on_failure":null,"callback":"https://x/"}`))
	if err != nil {
		t.Fatal(err)
	}
	fromCSV, err := csvLine([]string{"kind", "tenant", "payload", "on_success", "on_failure", "callback"},
		[]string{"a", "t", "1", success, "", "https://x/"})
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]line{"NDJSON": fromJSON, "CSV": fromCSV} {
		job, err := l.job()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if job.OnFailure != nil || job.Callback != "https://x/" || job.OnSuccess == nil {
			t.Fatalf("%s: %+v", name, job)
		}
		b := job.OnSuccess
		if b.Kind != "b" || b.Tenant != "t2" || b.In != 90*time.Second || text(t, b) != `{"x": "<&>"}` || b.OnFailure == nil {
			t.Fatalf("%s: on_success: %+v", name, b)
		}
		if c := b.OnFailure; c.Kind != "c" || c.Callback != "https://y/" || text(t, c) != "3" {
			t.Errorf("%s: on_success.on_failure: %+v", name, c)
		}
	}
}

func text(t *testing.T, job *queue.Job) string {
	t.Helper()
	raw, ok := job.Payload.(interface{ MarshalJSON() ([]byte, error) })
	if !ok {
		t.Fatalf("payload of type %T", job.Payload)
	}
	b, err := raw.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestLinesWithBadFollowUps(t *testing.T) {
	for in, want := range map[string]string{
		`"on_success":1`:                                                 "on_success: want one object",
		`"on_success":{"kidn":"b"}`:                                      `on_success: "kidn": unknown field`,
		`"on_success":{"kind":"b"}`:                                      "on_success.payload: it is missing",
		`"on_failure":{"payload":1,"at":"x"}`:                            "on_failure.at: ",
		`"on_failure":{"kind":"webhook","payload":{"url":"x"}}`:          "on_failure.payload: url: ",
		`"on_success":{"payload":1,"on_failure":{"payload":1,"cost":0}}`: "on_success.on_failure.cost: 0",
		`"on_success":{"payload":1,"on_failure":[]}`:                     "on_success.on_failure: want one object",
		`"callback":""`:                                                  "callback: it is empty",
	} {
		l, err := parseLine([]byte(`{"kind":"a","payload":1,` + in + `}`))
		if err == nil {
			_, err = l.job()
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v; want %s", in, err, want)
		}
	}
	if _, err := parseLine([]byte(`{"kind":"a","payload":1,"callback":{}}`)); err == nil || !strings.Contains(err.Error(), "callback: want a text") {
		t.Errorf("a callback that is no text: %v", err)
	}
	if _, err := csvLine([]string{"kind", "on_success"}, []string{"a", "{"}); err == nil || !strings.Contains(err.Error(), "on_success: ") {
		t.Errorf("a cell that is no JSON: %v", err)
	}
}

// The depth is the queue's to judge, and a line of any depth is read.
func TestDeepLines(t *testing.T) {
	deep := strings.Repeat(`{"kind":"call","tenant":"a","payload":1,"on_success":`, 2000) + "null" + strings.Repeat("}", 2000)
	l, err := parseLine([]byte(deep))
	if err != nil {
		t.Fatal(err)
	}
	job, err := l.job()
	if err != nil {
		t.Fatal(err)
	}
	_, client := own(t)
	if _, err := queue.NewClient(client).Enqueue(t.Context(), job); err == nil || !strings.Contains(err.Error(), "on_success: more than 8") {
		t.Errorf("2,000 deep: %v", err)
	}
}
