package api

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/strictjson"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/validation"
	"github.com/headgate/headgate/throttle"
)

// TestUnknownParameters: a query parameter that openapi.json does not describe is an error, on
// each route, and all of them are told at once.
func TestUnknownParameters(t *testing.T) {
	r := newRig(t, redistest.Shared(t), nil)
	r.publish(throttle.PerSecond(1))
	r.want(400, `{"field":"onyl","reason":"there is no such query parameter; did you mean \"only\"?"}`, "GET", "/queues/"+r.queue+"/tenants?onyl=paused", "")
	r.want(400, `[{"field":"first","reason":"there is no such query parameter"},{"field":"second","reason":"there is no such query parameter"}]`, "GET", "/workers?second=2&first=1", "")
	r.want(200, "", "GET", "/queues/"+r.queue+"/tenants?only=paused&sort=tenant&order=desc&offset=0&limit=1&search=a", "")
	for _, route := range r.api.table() {
		if _, ok := r.api.parameters[route.method+" "+route.path]; !ok && route.stream == nil {
			r.want(400, `"field":"x"`, route.method, route.path+"?x=1", "{}")
		}
	}
}

// TestAllMistakesOfARequest: unknown, mistyped and invalid fields of a body are told at once, with
// the paths of those within a payload.
func TestAllMistakesOfARequest(t *testing.T) {
	r := newRig(t, redistest.Shared(t), func(c *Config) { c.CheckPayload = checkWebhook })
	r.publish(throttle.PerSecond(1))
	at := "/queues/" + r.queue
	for _, test := range []struct{ method, path, body, want string }{
		{"POST", "/jobs", `{"kind":"webhook","tenant":"","priority":"urgent","queue":"` + r.queue + `","payload":{"ulr":"x","boody":1}}`, "boody,url,ulr,tenant,priority"},
		{"POST", "/jobs", `{"kind":"no-such-kind","tenant":"","payload":1,"cost":0}`, "queue,tenant,cost"},
		{"POST", at + "/pause", `{"tenannt":"acme","for":"soon"}`, "tenannt,for,reason"},
		{"POST", at + "/resume", `{"tenannt":"acme"}`, "tenannt,reason"},
		{"POST", at + "/actions", `{"verb":"explode","kind":"a b","tenant":"acme","contians":"x"}`, "contians,verb,kind,reason"},
		{"POST", at + "/actions", `{"verb":"cancel","reason_contains":"x","state":"archived","group":{"kind":1},"reason":""}`, "group.kind,state,reason"},
		{"PUT", at + "/tenants/acme/limits/tenant", `{"rat":"1/s","rate":"fast","until":"2030-01-01T00:00:00Z","for":"1h"}`, "rat,rate,for,reason"},
	} {
		got := r.want(400, "", test.method, test.path, test.body)
		var fields []string
		errs, _ := got.get(t, "errors").([]any)
		for _, e := range errs {
			fields = append(fields, strings.TrimPrefix(e.(map[string]any)["field"].(string), "payload."))
		}
		for field := range strings.SplitSeq(test.want, ",") {
			if !slices.Contains(fields, field) {
				t.Errorf("%s %s: no error of %s: %s", test.method, test.body, field, got.body)
			}
		}
	}
}

// TestManyMistakes: of a body with more mistakes than an answer should have, the first are listed, and the answer says
// that there are more.
func TestManyMistakes(t *testing.T) {
	r := newRig(t, redistest.Shared(t), func(c *Config) { c.CheckPayload = refuseFields })
	job := `{"kind":"call","tenant":"acme","queue":"` + r.queue + `","payload":1`
	fields := make([]string, 5_000)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"name%d":""`, i)
	}
	for name, body := range map[string]string{
		"unknown fields":        job + strings.Repeat(`,"a":1`, 30_000) + "}",
		"those of a follow-up":  strings.Repeat(job+`,"on_success":`, 9) + job + strings.Repeat(`,"a":1`, 10_000) + strings.Repeat("}", 10),
		"fields of a payload":   `{"kind":"call","tenant":"acme","queue":"` + r.queue + `","payload":{` + strings.Join(fields, ",") + "}}",
		"one more than allowed": job + strings.Repeat(`,"a":1`, check.MaxErrors+1) + "}",
	} {
		one := r.want(400, `"reason":"`+check.AndMore+`"}]`, "POST", "/jobs", body)
		batch := r.want(207, `"reason":"`+check.AndMore+`"}]`, "POST", "/jobs/batch", body, "Content-Type", ndjson)
		if len(one.body) > 64<<10 || len(batch.body) > 64<<10 {
			t.Errorf("%s: answers of %d and %d bytes", name, len(one.body), len(batch.body))
		}
		result := batch.get(t, "results").([]any)[0].(map[string]any)["error"].(map[string]any)
		for _, problem := range []struct{ detail, errors any }{{one.get(t, "detail"), one.get(t, "errors")}, {result["reason"], result["errors"]}} {
			if n := len(problem.errors.([]any)); n != check.MaxErrors+1 || !strings.HasSuffix(problem.detail.(string), check.AndMore) {
				t.Errorf("%s: %d errors: %.300s", name, n, problem.detail)
			}
		}
	}
	if got := r.want(400, "", "POST", "/jobs", job+strings.Repeat(`,"a":1`, check.MaxErrors)+"}"); strings.Contains(got.body, check.AndMore) || len(got.get(t, "errors").([]any)) != check.MaxErrors {
		t.Errorf("exactly as many: %s", got.body)
	}

	line := job + strings.Repeat(`,"a":1`, check.MaxErrors+1) + "}\n"
	results := r.want(207, `"refused":1100`, "POST", "/jobs/batch", strings.Repeat(line, 1100), "Content-Type", ndjson).get(t, "results").([]any)
	for i, want := range map[int]int{0: check.MaxErrors + 1, maxListed / (check.MaxErrors + 1): 2, 1099: 2} {
		problem := results[i].(map[string]any)["error"].(map[string]any)
		if n := len(problem["errors"].([]any)); n != want || !strings.HasSuffix(problem["reason"].(string), "a: "+check.AndMore) {
			t.Errorf("job %d of a batch has %d errors, want %d: %.300s", i, n, want, problem["reason"])
		}
	}
}

// refuseFields takes each field of a payload for a mistake.
func refuseFields(_ string, payload json.RawMessage) (all []error) {
	var object map[string]any
	_ = json.Unmarshal(payload, &object) // what is no object has no fields
	for name := range object {
		all = append(all, validation.Field(name, "unexpected"))
	}
	return all
}

// checkWebhook checks the payloads of a kind.
func checkWebhook(kind string, payload json.RawMessage) (all []error) {
	if kind != "webhook" {
		return nil
	}
	var webhook struct {
		URL string `json:"url"`
	}
	for _, wrong := range strictjson.FieldErrors(strictjson.Decode(payload, &webhook)) {
		all = append(all, validation.Field(wrong.Field, wrong.Reason))
	}
	if webhook.URL == "" {
		all = append(all, validation.Field("url", "missing"))
	}
	return all
}
