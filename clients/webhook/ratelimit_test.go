package webhook

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/clients"
)

// text describes a quota: "limit window remaining", "-" where nothing is said.
func text(q *clients.Quota) string {
	if q == nil {
		return "nothing"
	}
	left := "-"
	if q.Remaining != nil {
		left = fmt.Sprint(*q.Remaining)
	}
	return fmt.Sprint(q.Limit, " ", q.Window, " ", left)
}

// header makes a header of names and values, one after the other.
func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// TestQuotaOf: what receivers say of their limits is read in every form that is in use, and what is no number of calls is
// left out.
func TestQuotaOf(t *testing.T) {
	for name, test := range map[string]struct {
		header http.Header
		want   string
	}{
		"nothing":         {header("Content-Type", "text/plain"), "nothing"},
		"draft 10":        {header("RateLimit-Policy", `"default";q=100;w=60`, "RateLimit", `"default";r=7;t=30`), "100 1m0s 7"},
		"no window":       {header("RateLimit-Policy", `"default";q=100`, "RateLimit", `"default";r=7;t=30`), "0 0s 7"},
		"no policy":       {header("RateLimit", `"default";r=0;t=30`), "0 0s 0"},
		"a partition key": {header("RateLimit-Policy", `"peruser";q=100;w=60;pk=:cHsdsRa894==:`), "100 1m0s -"},
		"several, the shortest window": {
			header("RateLimit-Policy", `"day";q=1000;w=86400, "burst";q=10;w=1`, "RateLimit-Policy", `"hour";q=100;w=3600`, "RateLimit", `"burst";r=9;t=1, "day";r=2;t=900, "hour";r=40;t=9`),
			"10 1s 9",
		},
		"requests, by name": {header("RateLimit-Policy", `"a";q=5;w=1;qu="requests"`, "RateLimit", `"a";r=3`), "5 1s 3"},
		"other units": {
			header("RateLimit-Policy", `"bytes";q=5000;w=1;qu="content-bytes", "open";q=10;qu="concurrent-requests"`, "RateLimit", `"bytes";r=0;t=1, "open";r=1`), "nothing",
		},
		"bytes beside requests": {header("RateLimit-Policy", `"b";q=5;w=1;qu="content-bytes", "r";q=8;w=2`, "RateLimit", `"b";r=0, "r";r=6`), "8 2s 6"},
		"draft 7":               {header("RateLimit-Policy", "100;w=60", "RateLimit", "limit=100, remaining=50, reset=5"), "100 1m0s 50"},
		"draft 6":               {header("RateLimit-Limit", "10, 10;w=1, 50;w=60", "RateLimit-Remaining", "4", "RateLimit-Reset", "1"), "10 1s 4"},
		"before all drafts":     {header("X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", " 4999 ", "X-RateLimit-Reset", "1795900000"), "0 0s 4999"},

		"no numbers":     {header("RateLimit-Policy", `"a";q=many;w=1, "b";q=5;w=soon`, "RateLimit", `"a";r=few`, "X-RateLimit-Remaining", "none"), "nothing"},
		"fractions":      {header("RateLimit-Policy", `"a";q=1.5;w=1`, "RateLimit", `"a";r=0.5`), "nothing"},
		"less than none": {header("RateLimit-Policy", `"a";q=-5;w=1, "b";q=0;w=1, "c";q=5;w=-1`, "RateLimit", `"a";r=-1`, "X-RateLimit-Remaining", "-1"), "nothing"},
		"too much":       {header("RateLimit-Policy", `"a";q=999999999999999;w=1, "b";q=5;w=99999999`, "RateLimit", `"a";r=999999999999999`), "nothing"},
		"no list":        {header("RateLimit-Policy", `"a;q=5`, "RateLimit", "{}"), "nothing"},
		"odd names":      {header("RateLimit-Policy", `:YWJj:;q=5;w=1;qu="x", ("a" "b");q=5;w=1, ?1;q=6;w=3`, "RateLimit", `:YWJj:;r=3, ("a");r=2`), "6 3s -"},
		"odd dictionary": {header("RateLimit", "remaining=(1 2), limit"), "nothing"},
	} {
		if got := text(QuotaOf(test.header)); got != test.want {
			t.Errorf("%s: %s; want %s", name, got, test.want)
		}
	}
}

// FuzzQuotaOf: whatever a receiver sends, its limit and what remains are in range.
func FuzzQuotaOf(f *testing.F) {
	f.Add(`"a";q=5;w=1`, `"a";r=3`, "3")
	f.Add(":YWJj:;q=5;w=1;qu=:YWJj:", "limit=5, remaining=?1", "")
	f.Fuzz(func(t *testing.T, policy, state, left string) {
		q := QuotaOf(header("RateLimit-Policy", policy, "RateLimit-Limit", policy, "RateLimit", state, "RateLimit-Remaining", left))
		if q == nil {
			return
		}
		if q.Limit < 0 || q.Limit > maxLimit || q.Window < 0 || q.Window > maxWindow || (q.Limit == 0) != (q.Window == 0) {
			t.Errorf("%d calls in %v", q.Limit, q.Window)
		}
		if q.Remaining != nil && (*q.Remaining < 0 || *q.Remaining > maxLimit) {
			t.Errorf("%d remain", *q.Remaining)
		}
	})
}

// TestQuotaIsReported: what an answer says of the receiver's limit is reported with the context of its call, whatever the
// answer is, and nothing where it says nothing.
func TestQuotaIsReported(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/silent" {
			w.Header().Set("RateLimit-Policy", `"default";q=100;w=60`)
		}
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer server.Close()
	type key struct{}
	var got []string
	s := newSender(t, Config{Quota: func(ctx context.Context, q clients.Quota) {
		got = append(got, fmt.Sprint(ctx.Value(key{}), ": ", text(&q)))
	}})
	for _, path := range []string{"/", "/refused", "/silent"} {
		err := s.Send(context.WithValue(t.Context(), key{}, path), clients.Call{Job: "1"}, Request{URL: server.URL + path})
		if refused := path == "/refused"; (err != nil) != refused {
			t.Errorf("%s: %v", path, err)
		}
	}
	if want := fmt.Sprint([]string{"/: 100 1m0s -", "/refused: 100 1m0s -"}); fmt.Sprint(got) != want {
		t.Errorf("%v; want %s", got, want)
	}
}
