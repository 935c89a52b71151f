package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/workers"
)

// TestWarningOfPrivateHosts: the answer to a job says that no worker calls its address.
func TestWarningOfPrivateHosts(t *testing.T) {
	private := func(kind string, payload json.RawMessage) string {
		if kind == "webhook" && strings.Contains(string(payload), "127.0.0.1") {
			return "127.0.0.1:80"
		}
		return ""
	}
	r := newRig(t, redistest.Start(t), func(c *Config) { c.PrivateHost = private })
	id := r.redis.ZRange(t.Context(), workers.ListKey, 0, -1).Val()[0]
	for details, warning := range map[string]string{
		`{"providers":[{"kind":"webhook"}]}`:                              "127.0.0.1:80 is not a public internet address: the job is held until",
		`{"providers":[{"kind":"webhook"}],"webhook_allow_private":true}`: "",
		`{"mine":1}`: "",
	} {
		text, err := json.Marshal(workers.Info{ID: id, Kinds: []string{"webhook"}, Details: json.RawMessage(details)})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.redis.Set(t.Context(), workers.Key(id), text, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		for url, want := range map[string]string{"http://127.0.0.1/": warning, "http://example.com/": ""} {
			body := fmt.Sprintf(`{"kind":"webhook","queue":%q,"tenant":"a","payload":{"url":%q}}`, r.queue, url)
			got, _ := r.want(http.StatusAccepted, r.queue, "POST", "/jobs", body).get(t, "warning").(string)
			if !strings.HasPrefix(got, want) || (got == "") != (want == "") {
				t.Errorf("%s, %s: %q; want %q", details, url, got, want)
			}
		}
	}
}
