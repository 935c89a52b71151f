package jobline

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/test/golden"
)

// TestFields: the fields of a line, of the documentation and of the OpenAPI document are the
// same, with the same words.
func TestFields(t *testing.T) {
	var tags []string
	for field := range reflect.TypeFor[Line]().Fields() {
		if field.IsExported() {
			tags = append(tags, field.Tag.Get("json"))
		}
	}
	slices.Sort(tags)
	if listed := slices.Sorted(slices.Values(names)); !slices.Equal(tags, listed) {
		t.Errorf("a line has %v, and Fields lists %v", tags, listed)
	}

	var b strings.Builder
	b.WriteString("| Field | Meaning | Default |\n|---|---|---|\n")
	for _, f := range Fields {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.Name, f.Doc, f.Default)
	}
	golden.Part(t, "../../docs/jobs.md", "fields", b.String())

	description, err := os.ReadFile("../../dashboard/api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var api struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct{ Description string }
				Required   []string
			}
		}
	}
	if err := json.Unmarshal(description, &api); err != nil {
		t.Fatal(err)
	}
	job := api.Components.Schemas["Job"]
	if len(job.Properties) != len(Fields) {
		t.Errorf("the OpenAPI document has %d fields of a job, want %d", len(job.Properties), len(Fields))
	}
	for _, f := range Fields {
		if got := job.Properties[f.Name].Description; got != f.Doc+"." && !strings.HasPrefix(got, f.Doc+". ") {
			t.Errorf("the OpenAPI document says %q of %s; want %q", got, f.Name, f.Doc+".")
		}
	}
}
