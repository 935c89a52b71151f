package api_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/queue/workers"
)

// TestReadWorkerDetails: workers of other programs tell something else, or nothing.
func TestReadWorkerDetails(t *testing.T) {
	for _, test := range []struct {
		details string
		want    api.WorkerDetails
		fails   bool
	}{
		{"", api.WorkerDetails{}, false},
		{"null", api.WorkerDetails{}, false},
		{`{"mine":[1,2]}`, api.WorkerDetails{}, false},
		{`{"providers":[{"kind":"ai","quotas":[{"account":"acme","name":"tokens","remaining":0}]}]}`, api.WorkerDetails{
			Providers: []api.ProviderDetails{{Kind: "ai", Quotas: []api.Quota{{Account: "acme", Name: "tokens", Remaining: new(int64(0))}}}},
		}, false},
		{`{"providers":[{"kind":"ai"},{"kind":1}]}`, api.WorkerDetails{}, true},
		{`"text"`, api.WorkerDetails{}, true},
		{`{`, api.WorkerDetails{}, true},
	} {
		got, err := api.ReadWorkerDetails(workers.Info{ID: "w-1", Details: json.RawMessage(test.details)})
		if (err != nil) != test.fails || !reflect.DeepEqual(got, test.want) || err != nil && !strings.Contains(err.Error(), "w-1") {
			t.Errorf("%s: %+v, %v", test.details, got, err)
		}
	}
}
