package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/queue"
)

// The same job in each form: NDJSON, two of CSV, and flags.
func TestCostsAndKeys(t *testing.T) {
	want := queue.Job{
		Kind: "call", Tenant: "a", Key: "k", KeyWindow: 5 * time.Minute, Retention: time.Hour,
		Costs: map[string]int64{"tokens": 1200, "cents": 5}, Payload: json.RawMessage(`1`),
	}
	parse := map[string]func() (line, error){
		"NDJSON": func() (line, error) {
			return parseLine([]byte(`{"kind":"call","tenant":"a","key":"k","key_window":"5m","retention":"1h","costs":{"tokens":1200,"cents":5},"payload":1}`))
		},
		"CSV, a column each": func() (line, error) {
			return csvLine(strings.Split("kind,tenant,key,key_window,retention,costs.tokens,costs.cents,payload", ","), strings.Split("call,a,k,5m,1h,1200,5,1", ","))
		},
		"CSV, one column": func() (line, error) {
			return csvLine(strings.Split("kind tenant key key_window retention costs payload", " "), []string{"call", "a", "k", "5m", "1h", `{"tokens":1200,"cents":5}`, "1"})
		},
	}
	for name, parse := range parse {
		l, err := parse()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if job, err := l.job(); err != nil || !reflect.DeepEqual(job, want) {
			t.Errorf("%s: %+v, %v; want %+v", name, job, err, want)
		}
	}
	for text, says := range map[string]string{
		`{"kind":"call","tenant":"a","payload":1,"costs":{"tokens":1.5}}`:                  "costs: want",
		`{"kind":"call","tenant":"a","payload":1,"costs":{"tokens":"many"}}`:               "costs: want",
		`{"kind":"call","tenant":"a","payload":1,"key":"k","key_window":"soon"}`:           `key_window: "soon" is not a duration`,
		`{"kind":"call","tenant":"a","payload":1,"key":"k","key_until":1}`:                 "key_until: want a text",
		`{"kind":"call","tenant":"a","payload":1,"key":"k","retention":"for a long time"}`: "retention: ",
	} {
		l, err := parseLine([]byte(text))
		if err == nil {
			_, err = l.job()
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", text, err, says)
		}
	}
}

func TestSendWithCosts(t *testing.T) {
	server := redistest.Start(t)
	out, errText, code := enqueue(t, "", "send", "--redis", server.URL(), "--queue", "q", "--kind", "call", "--tenant", "a", "--payload", "1",
		"--costs", "tokens=1200", "--costs", "cents=5", "--key", "k", "--key-until", "ended", "--json")
	if code != exitOK {
		t.Fatalf("%q %q, exit %d", out, errText, code)
	}
	var sent struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(out), &sent); err != nil {
		t.Fatal(err)
	}
	task := "asynq:{q}:t:" + sent.ID
	if got := server.Client().HGet(t.Context(), task, "hg_costs").Val(); got != "cents=5;tokens=1200" {
		t.Errorf("costs %q", got)
	}
	if got := server.Client().Get(t.Context(), "headgate:{q}:unique:a:k").Val(); got != sent.ID {
		t.Errorf("the key is held by %q; want %s", got, sent.ID)
	}
}

// What a job takes of metered limits is estimated where its producer does not say.
func TestEstimatedCosts(t *testing.T) {
	for text, want := range map[string]map[string]int64{
		`{"kind":"email","tenant":"a","payload":{"from":"a@b.c","to":["x@y.z"],"cc":["x2@y.z","x@y.z"],"subject":"s","text":"t"}}`:                 {"recipients": 2},
		`{"kind":"email","tenant":"a","costs":{"recipients":7},"payload":{"from":"a@b.c","to":["x@y.z"],"subject":"s","text":"t"}}`:                {"recipients": 7},
		`{"kind":"ai","tenant":"a","payload":{"model":"m","messages":[{"role":"user","content":"hello!"}],"max_tokens":100}}`:                      {"tokens": 111},
		`{"kind":"payment","tenant":"a","payload":{"action":"create_and_confirm","amount":1999,"currency":"usd","payment_method":"pm_card_visa"}}`: nil,
	} {
		l, err := parseLine([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if job, err := l.job(); err != nil || !reflect.DeepEqual(job.Costs, want) {
			t.Errorf("%s: %v, %v; want %v", text, job.Costs, err, want)
		}
	}
}
