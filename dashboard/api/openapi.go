package api

import (
	_ "embed"
	"encoding/json"
	"runtime"
)

//go:embed openapi.json
var description []byte

// openapi serves the description of the API.
func (a *API) openapi(*request) (answer, error) {
	return answer{body: json.RawMessage(description)}, nil
}

// version serves which build the server is.
func (a *API) version(*request) (answer, error) {
	return answer{body: map[string]string{"version": a.config.Version, "go": runtime.Version()}}, nil
}
