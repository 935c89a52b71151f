package jobline

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/payloads"
	"github.com/headgate/headgate/internal/strictjson"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/validation"
)

func TestMain(m *testing.M) { redistest.Main(m) }

var known = Payloads{Check: payloads.Check, Costs: payloads.Costs}

func TestLinesWithFollowUps(t *testing.T) {
	const success = `{"kind":"b", "tenant":"t2","in":"90s","payload":{"x": "<&>"},"on_failure":{"kind":"c","payload":3,"callback":"https://y/"}}`
	fromJSON, err := Parse([]byte(`{"kind":"a","tenant":"t","payload":1,"on_success":` + success + `,"on_failure":null,"callback":"https://x/"}`))
	if err != nil {
		t.Fatal(err)
	}
	fromCSV, err := csvLine([]string{"kind", "tenant", "payload", "on_success", "on_failure", "callback"},
		[]string{"a", "t", "1", success, "", "https://x/"})
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]Line{"NDJSON": fromJSON, "CSV": fromCSV} {
		job, err := l.Job(known)
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
		`"on_success":1`:                                                 "on_success: must be one object",
		`"on_success":{"kidn":"b"}`:                                      `on_success.kidn: unknown field`,
		`"on_success":{"kind":"b"}`:                                      "on_success.payload: it is missing",
		`"on_failure":{"payload":1,"at":"x"}`:                            "on_failure.at: ",
		`"on_failure":{"kind":"webhook","payload":{"url":"x"}}`:          "on_failure.payload.url: ",
		`"on_success":{"payload":1,"on_failure":{"payload":1,"cost":0}}`: "on_success.on_failure.cost: 0",
		`"on_success":{"payload":1,"on_failure":[]}`:                     "on_success.on_failure: must be one object",
		`"callback":""`:                                                  "callback: it is empty",
	} {
		l, err := Parse([]byte(`{"kind":"a","payload":1,` + in + `}`))
		if err == nil {
			_, err = l.Job(known)
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v; want %s", in, err, want)
		}
	}
	l, err := Parse([]byte(`{"kind":"a","payload":1,"callback":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Job(known); err == nil || !strings.Contains(err.Error(), "callback: must be a text") {
		t.Errorf("a callback that is no text: %v", err)
	}
	if l, err = csvLine([]string{"kind", "on_success"}, []string{"a", "{"}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Job(known); err == nil || !strings.Contains(err.Error(), "on_success: ") {
		t.Errorf("a cell that is no JSON: %v", err)
	}
}

// TestAllMistakesAtOnce: a line tells all that is wrong with it, whatever it is.
func TestAllMistakesAtOnce(t *testing.T) {
	const want = `kidn: unknown field; did you mean "kind"?; tenant: duplicate field; cost: must be a whole number, not a JSON string; ` +
		`deadline: "soon" is not a time such as 2026-01-31T09:00:00Z; on_success.at: must be a text, not a JSON number; on_success.payload: it is missing`
	l, err := Parse([]byte(`{"kidn":"a","kind":"a","tenant":"t","tenant":"u","cost":"1","deadline":"soon","payload":1,"on_success":{"kind":"b","at":7}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = l.Job(known); err == nil || strings.ReplaceAll(err.Error(), "\n", "; ") != want {
		t.Errorf("%v; want %s", err, want)
	}
	for _, err := range validation.Unjoin(err) {
		if _, ok := errors.AsType[*validation.Error](err); !ok {
			t.Errorf("%v names no field", err)
		}
	}
	l, err = csvLine([]string{"kind", "tenant", "cost", "costs.tokens", "on_success", "payload"}, []string{"a", "t", "x", "many", "{", "1"})
	if err != nil {
		t.Fatal(err)
	}
	const cells = `cost: "x" is not JSON; costs.tokens: "many" is not a number; on_success: "{" is not JSON`
	if _, err = l.Job(known); err == nil || strings.ReplaceAll(err.Error(), "\n", "; ") != cells {
		t.Errorf("%v; want %s", err, cells)
	}
}

// The depth is the queue's to judge, and a line of any depth is read.
func TestDeepLines(t *testing.T) {
	deep := strings.Repeat(`{"kind":"call","tenant":"a","queue":"jobline","payload":1,"on_success":`, 2000) + "null" + strings.Repeat("}", 2000)
	l, err := Parse([]byte(deep))
	if err != nil {
		t.Fatal(err)
	}
	job, err := l.Job(known)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := queue.NewClient(redistest.Shared(t).Client()).Enqueue(t.Context(), job); err == nil || !strings.Contains(err.Error(), "on_success: more than 8") {
		t.Errorf("2,000 deep: %v", err)
	}
}

// The same job in each form.
func TestCostsAndKeys(t *testing.T) {
	want := queue.Job{
		Kind: "call", Tenant: "a", Key: "k", KeyWindow: 5 * time.Minute, Retention: time.Hour,
		Costs: map[string]int64{"tokens": 1200, "cents": 5}, Payload: json.RawMessage(`1`),
	}
	parse := map[string]func() (Line, error){
		"NDJSON": func() (Line, error) {
			return Parse([]byte(`{"kind":"call","tenant":"a","key":"k","key_window":"5m","retention":"1h","costs":{"tokens":1200,"cents":5},"payload":1}`))
		},
		"CSV, a column each": func() (Line, error) {
			return csvLine(strings.Split("kind,tenant,key,key_window,retention,costs.tokens,costs.cents,payload", ","), strings.Split("call,a,k,5m,1h,1200,5,1", ","))
		},
		"CSV, one column": func() (Line, error) {
			return csvLine(strings.Split("kind tenant key key_window retention costs payload", " "), []string{"call", "a", "k", "5m", "1h", `{"tokens":1200,"cents":5}`, "1"})
		},
	}
	for name, parse := range parse {
		l, err := parse()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if job, err := l.Job(known); err != nil || !reflect.DeepEqual(job, want) {
			t.Errorf("%s: %+v, %v; want %+v", name, job, err, want)
		}
	}
	for text, says := range map[string]string{
		`{"kind":"call","tenant":"a","payload":1,"costs":{"tokens":1.5}}`:                  "costs: must be",
		`{"kind":"call","tenant":"a","payload":1,"costs":{"tokens":"many"}}`:               "costs: must be",
		`{"kind":"call","tenant":"a","payload":1,"key":"k","key_window":"soon"}`:           `key_window: "soon" is not a duration`,
		`{"kind":"call","tenant":"a","payload":1,"key":"k","key_until":1}`:                 "key_until: must be a text",
		`{"kind":"call","tenant":"a","payload":1,"key":"k","retention":"for a long time"}`: "retention: ",
	} {
		l, err := Parse([]byte(text))
		if err == nil {
			_, err = l.Job(known)
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want %q", text, err, says)
		}
	}
}

// What a job takes of metered limits is estimated, and its producer can say more and not less.
func TestEstimatedCosts(t *testing.T) {
	for text, want := range map[string]map[string]int64{
		`{"kind":"email","tenant":"a","payload":{"from":"a@b.c","to":["x@y.z"],"cc":["x2@y.z","x@y.z"],"subject":"s","text":"t"}}`:                    {"recipients": 2},
		`{"kind":"email","tenant":"a","costs":{"recipients":7},"payload":{"from":"a@b.c","to":["x@y.z"],"subject":"s","text":"t"}}`:                   {"recipients": 7},
		`{"kind":"email","tenant":"a","costs":{"recipients":0,"cents":3},"payload":{"from":"a@b.c","to":["x@y.z","u@y.z"],"subject":"s","text":"t"}}`: {"recipients": 2, "cents": 3},
		`{"kind":"ai","tenant":"a","payload":{"model":"m","messages":[{"role":"user","content":"hello!"}],"max_tokens":100}}`:                         {"tokens": 111},
		`{"kind":"payment","tenant":"a","payload":{"action":"create_and_confirm","amount":1999,"currency":"usd","payment_method":"pm_card_visa"}}`:    nil,
	} {
		l, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if job, err := l.Job(known); err != nil || !reflect.DeepEqual(job.Costs, want) {
			t.Errorf("%s: %v, %v; want %v", text, job.Costs, err, want)
		}
	}
}

// A payload is sent as it was written: somebody may have signed it.
func TestPayloadStaysAsItIs(t *testing.T) {
	const payload = `{"b": "<&>",  "n":1.50}`
	l, err := csvLine([]string{"kind", "payload"}, []string{"call", payload})
	if err != nil || string(l.Payload) != payload || *l.Kind != "call" {
		t.Errorf("CSV: %s, %v", l.Payload, err)
	}
	if l, err = Parse([]byte(`{"kind":"call","payload":` + payload + `}`)); err != nil || string(l.Payload) != payload {
		t.Errorf("NDJSON: %s, %v", l.Payload, err)
	}
}

func FuzzCSV(f *testing.F) {
	f.Add("tenant,kind,payload.x\na,call,\"x\ny\"\n\n\"\"\"\",b")
	f.Fuzz(func(t *testing.T, text string) {
		s := NewSource(strings.NewReader(text), "csv")
		for last := 0; ; {
			e, err := s.Next()
			if err != nil {
				return
			}
			if e.Number <= last || e.Number > strings.Count(text, "\n")+1 {
				t.Fatalf("line %d after line %d", e.Number, last)
			}
			last = e.Number
		}
	})
}

func FuzzLine(f *testing.F) {
	f.Add(`{"kind":"a","payload":1,"on_success":{"kind":"b","payload":2,"on_failure":{}},"callback":"http://x/"}`)
	f.Add(`{"kind":"webhook","tenant":"a","payload":{"url":"http://x/"},"cost":1,"at":"2030-01-01T00:00:00Z"}`)
	f.Fuzz(func(t *testing.T, text string) {
		if l, err := Parse([]byte(text)); err == nil {
			_, _ = l.Job(known) // must not panic, whatever it says
		}
	})
}

// FuzzPlainFields: the quick look at the fields finds no line plain that the thorough
// one has something against.
func FuzzPlainFields(f *testing.F) {
	for _, text := range []string{
		` {"kind" : "a\\\"}", "payload":{"a":[1,"}]"],"kind":2} ,"cost":1e3}`, `{"kind":"a","kind":"b"}`, `{"Kind":"a"}`, `{"ki\u006ed":"a"}`, `{}`, `null`, `{"at":null,"x":1}`,
		`{"payload":"\\","tenant":""}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return
		}
		_, err := strictjson.Members(text, names)
		if plain := plainFields(text); plain && err != nil {
			t.Errorf("%s is plain, but %v", text, err)
		} else if !plain && err == nil && !bytes.Contains(text, []byte(`\`)) {
			t.Errorf("%s is not plain", text)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	text := []byte(`{"kind":"webhook","tenant":"acme","key":"order-4711","payload":{"url":"https://example.com/hook","body":{"order":4711,"lines":[1,2,3]}}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}
