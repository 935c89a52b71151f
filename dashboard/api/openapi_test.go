package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/jobline"
	"github.com/headgate/headgate/internal/test/redistest"
)

// document is the description as far as these tests read it.
type document struct {
	Paths      map[string]map[string]json.RawMessage `json:"paths"`
	Components struct {
		Schemas map[string]*schema `json:"schemas"`
	} `json:"components"`
}

type schema struct {
	Ref        string             `json:"$ref"`
	AllOf      []*schema          `json:"allOf"`
	Type       any                `json:"type"`
	Properties map[string]*schema `json:"properties"`
	Required   []string           `json:"required"`
}

func described(t *testing.T) document {
	t.Helper()
	var d document
	if err := json.Unmarshal(description, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// What the API has is what its description has.
func TestRoutesAreDescribed(t *testing.T) {
	d := described(t)
	var has, says []string
	a, err := New(Config{Redis: redistest.Shared(t).Client()})
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range a.routes {
		has = append(has, route.method+" "+route.path)
		var operation struct{ Description string }
		if err := json.Unmarshal(d.Paths[route.path][strings.ToLower(route.method)], &operation); err != nil {
			t.Errorf("%s %s: %v", route.method, route.path, err)
			continue
		}
		var scopes []string
		for _, scope := range route.scopes {
			scopes = append(scopes, string(scope))
		}
		if want := "Scope: " + strings.Join(scopes, " or ") + "."; len(scopes) > 0 && !strings.Contains(operation.Description, want) {
			t.Errorf("%s %s: %q; want %q", route.method, route.path, operation.Description, want)
		}
	}
	for path, operations := range d.Paths {
		for method := range operations {
			if method != "parameters" {
				says = append(says, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(has)
	slices.Sort(says)
	if !slices.Equal(has, says) {
		t.Errorf("the API has\n%s\nand its description\n%s", strings.Join(has, "\n"), strings.Join(says, "\n"))
	}
}

// fields are the properties of a schema, and which of them are required.
func (d document) fields(t *testing.T, s *schema) (properties map[string]*schema, required []string) {
	t.Helper()
	properties = map[string]*schema{}
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		if s = d.Components.Schemas[name]; s == nil {
			t.Fatalf("there is no schema %s", name)
		}
	}
	maps.Copy(properties, s.Properties)
	required = append(required, s.Required...)
	for _, part := range s.AllOf {
		more, needed := d.fields(t, part)
		maps.Copy(properties, more)
		required = append(required, needed...)
	}
	return properties, required
}

// What answers hold, and what bodies may hold, is what their schemas say.
func TestSchemas(t *testing.T) {
	d := described(t)
	answers := map[string]any{
		"Problem": problem{}, "FieldError": fieldError{}, "Session": sessionJSON{}, "Hold": holdJSON{}, "Receipt": receipt{}, "ItemError": itemError{},
		"ItemResult": itemResult{}, "BatchResult": batchAnswer{}, "Pause": pauseJSON{}, "Fault": faultJSON{}, "Outlook": outlookJSON{}, "Overview": overviewJSON{},
		"TenantRow": rowJSON{}, "Filed": asFiled{}, "Limit": ruleJSON{}, "LimitState": limitJSON{}, "Ramp": rampJSON{}, "Override": overriddenJSON{}, "Event": eventJSON{},
		"Tenant": tenantJSON{}, "JobRow": rowJobJSON{}, "TimelineEntry": timelineJSON{}, "JobDetail": jobJSON{}, "Tally": tallyJSON{},
		"FailureGroup": failureJSON{}, "Conformance": conformanceJSON{}, "ConformanceBucket": bucketJSON{}, "ConformanceHour": hourJSON{}, "Violation": violationJSON{}, "ViolationCause": causeJSON{},
		"LimitsFile": publishedJSON{}, "TrialRequest": trialBody{}, "Trial": trialJSON{}, "Waiting": waitingJSON{}, "TrialOutcome": outcomeJSON{}, "TrialLimit": trialLimitJSON{}, "TrialTenant": trialTenantJSON{},
		"LimitPreview": changedJSON{}, "Estimate": estimateJSON{}, "AuditEntry": auditJSON{}, "Point": point{}, "History": historyJSON{}, "Shares": sharesJSON{}, "Share": shareJSON{},
		"Worker": workerJSON{}, "Breaker": breakerJSON{}, "Quota": quotaJSON{}, "QuotaLimit": levelJSON{}, "Provider": providerJSON{}, "Reload": reloadJSON{},
		"Algorithm": bench{}, "Taken": takenJSON{}, "Unshaped": unshapedJSON{}, "Redis": redisJSON{},
	}
	for name, value := range answers {
		d.compare(t, name, reflect.TypeOf(value), true)
	}
	bodies := map[string]any{
		"Job": jobline.Line{}, "Why": why{}, "Action": action{}, "PauseRequest": pauseBody{}, "ResumeRequest": resumeBody{}, "LimitRequest": limitBody{},
		"EstimateRequest": estimateBody{}, "TakeRequest": takeBody{}, "OnRequest": onBody{}, "FailureKey": groupBody{},
	}
	for name, value := range bodies {
		d.compare(t, name, reflect.TypeOf(value), false)
	}
	inLine := []string{"Batch", "TenantPage", "Limits", "JobPage", "Failures", "OverviewEvent", "FinishedEvent", "AuditEvent"} // made in place
	for name := range d.Components.Schemas {
		if answers[name] == nil && bodies[name] == nil && !slices.Contains(inLine, name) {
			t.Errorf("schema %s is compared with nothing", name)
		}
	}
}

func (d document) compare(t *testing.T, name string, of reflect.Type, answer bool) {
	t.Helper()
	if d.Components.Schemas[name] == nil {
		t.Errorf("there is no schema %s", name)
		return
	}
	properties, required := d.fields(t, d.Components.Schemas[name])
	has := map[string]reflect.StructField{}
	jsonFields(of, has)
	for field, f := range has {
		s := properties[field]
		if s == nil {
			t.Errorf("%s: its description lacks %s", name, field)
			continue
		}
		if !answer {
			continue
		}
		_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if may := options != ""; may == slices.Contains(required, field) {
			t.Errorf("%s: %s may be left out: %v; its description says otherwise", name, field, may)
		}
		if want := jsonType(f.Type); s.Type != nil && want != "" && s.Type != want {
			t.Errorf("%s: %s is a JSON %s, not %v", name, field, want, s.Type)
		}
	}
	for field := range properties {
		if _, ok := has[field]; !ok {
			t.Errorf("%s: there is no %s", name, field)
		}
	}
}

func jsonFields(t reflect.Type, into map[string]reflect.StructField) {
	for field := range t.Fields() {
		if field.Anonymous {
			jsonFields(field.Type, into)
		} else if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			into[name] = field
		}
	}
}

func jsonType(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Float64:
		return "number"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "integer"
	case reflect.Slice:
		return "array"
	case reflect.Map:
		return "object"
	}
	if t == reflect.TypeFor[moment]() {
		return "string"
	}
	return ""
}

// All codes of problems are described, and no others.
func TestCodes(t *testing.T) {
	var d struct {
		Components struct {
			Schemas struct {
				Problem struct {
					Properties struct {
						Code struct{ Enum []string }
					}
				}
			}
		}
	}
	if err := json.Unmarshal(description, &d); err != nil {
		t.Fatal(err)
	}
	want := []string{
		codeInvalid, codeNoQueue, codeNoKey, codeForbidden, codeReadOnly, codeNotFound, codeMethod, codeConflict, codeWrongState, codeTooSlow, codeTooLarge, codeMediaType,
		codeBacklogFull, codeRedisFull, codeBusy, codeRateLimited, codeInternal, codeUnavailable, codePartly, codeUnknown,
	}
	if got := d.Components.Schemas.Problem.Properties.Code.Enum; !slices.Equal(got, want) {
		t.Errorf("%s\nwant %s", fmt.Sprint(got), fmt.Sprint(want))
	}
}
