package dashboard_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/dashboard"
	"github.com/headgate/headgate/queue/workers"
)

// TestReadWorkerDetails: workers of other programs tell something else, or nothing.
func TestReadWorkerDetails(t *testing.T) {
	for _, test := range []struct {
		details string
		want    dashboard.WorkerDetails
		fails   bool
	}{
		{"", dashboard.WorkerDetails{}, false},
		{"null", dashboard.WorkerDetails{}, false},
		{`{"mine":[1,2]}`, dashboard.WorkerDetails{}, false},
		{`{"providers":[{"kind":"ai","quotas":[{"account":"acme","name":"tokens","remaining":0}]}]}`, dashboard.WorkerDetails{
			Providers: []dashboard.ProviderDetails{{Kind: "ai", Quotas: []dashboard.Quota{{Account: "acme", Name: "tokens", Remaining: new(int64(0))}}}},
		}, false},
		{`{"providers":[{"kind":"ai"},{"kind":1}]}`, dashboard.WorkerDetails{}, true},
		{`"text"`, dashboard.WorkerDetails{}, true},
		{`{`, dashboard.WorkerDetails{}, true},
	} {
		got, err := dashboard.ReadWorkerDetails(workers.Info{ID: "w-1", Details: json.RawMessage(test.details)})
		if (err != nil) != test.fails || !reflect.DeepEqual(got, test.want) || err != nil && !strings.Contains(err.Error(), "w-1") {
			t.Errorf("%s: %+v, %v", test.details, got, err)
		}
	}
}
