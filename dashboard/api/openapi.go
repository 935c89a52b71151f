package api

import (
	_ "embed"
	"encoding/json"
)

//go:embed openapi.json
var description []byte

// openapi serves the description of the API.
func (a *API) openapi(*request) (answer, error) {
	return answer{body: json.RawMessage(description)}, nil
}
