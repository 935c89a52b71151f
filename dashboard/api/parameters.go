package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/validation"
)

// parameters returns the names of the query parameters by method and path, as openapi.json
// describes them: what it does not describe does not exist.
func parameters() (map[string][]string, error) {
	var described struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(description, &described); err != nil {
		return nil, fmt.Errorf("api: openapi.json: %w", err)
	}
	all := map[string][]string{}
	for path, operations := range described.Paths {
		for method, text := range operations {
			if method == "parameters" { // those of the path
				continue
			}
			var operation struct {
				Parameters []struct {
					Name string `json:"name"`
					In   string `json:"in"`
				} `json:"parameters"`
			}
			if err := json.Unmarshal(text, &operation); err != nil {
				return nil, fmt.Errorf("api: openapi.json: %s %s: %w", method, path, err)
			}
			for _, p := range operation.Parameters {
				if p.In == "query" {
					where := strings.ToUpper(method) + " " + path
					all[where] = append(all[where], p.Name)
				}
			}
		}
	}
	return all, nil
}

// checkQuery returns the errors for the query parameters that a route does not have, joined.
func (a *API) checkQuery(route route, r *http.Request) error {
	known := a.parameters[route.method+" "+route.path]
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(r.URL.Query())) {
		if !slices.Contains(known, name) {
			errs = append(errs, validation.Field(check.Printable(name, 60), "there is no such query parameter"+check.Suggest(name, known)))
		}
	}
	return errors.Join(errs...)
}
