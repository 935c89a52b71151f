package api

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
)

func TestLab(t *testing.T) {
	r := newRig(t, redistest.Start(t), nil)
	all := r.want(200, "", "GET", "/lab", "").get(t, "algorithms").([]any)
	if len(all) != 6 {
		t.Fatalf("%d algorithms", len(all))
	}
	for _, one := range all {
		one := one.(map[string]any)
		id := one["id"].(string)
		take := func() []any { return r.want(200, "", "POST", "/lab/"+id+"/take", `{"n":10}`).get(t, "results").([]any) }
		results := take()
		if windowOf(t, results[0]) != windowOf(t, results[9]) { // each window admits five
			r.want(200, "", "POST", "/lab/"+id+"/reset", "{}")
			results = take()
		}
		allowed, last := 0, map[string]any{}
		for _, result := range results {
			if last = result.(map[string]any); last["allowed"] == true {
				allowed++
			}
		}
		headers := last["headers"].(map[string]any)
		if !strings.Contains(headers["Ratelimit"].(string), id) {
			t.Errorf("%s: headers %v", id, headers)
		}
		if one["mode"] == "shaping" {
			if allowed != 10 || last["delay_seconds"].(float64) < 8 {
				t.Errorf("%s: %d of 10 allowed, the last after %v s", id, allowed, last["delay_seconds"])
			}
		} else if allowed < 5 || allowed > 6 || last["retry_after_seconds"] == nil || headers["Retry-After"] == nil { // one may come back meanwhile
			t.Errorf("%s: %d of 10 allowed, the last %v", id, allowed, last)
		}
		r.want(200, "", "POST", "/lab/"+id+"/reset", "{}")
		first := r.want(200, "", "POST", "/lab/"+id+"/take", `{"n":1}`).get(t, "results").([]any)[0].(map[string]any)
		if first["allowed"] != true || first["delay_seconds"] != nil {
			t.Errorf("%s after its reset: %v", id, first)
		}
	}
	r.want(404, "no algorithm", "POST", "/lab/magic/take", `{"n":1}`)
	r.want(400, "not in the range 1 to 10", "POST", "/lab/token_bucket/take", `{"n":1000}`)
	r.want(404, "Only worker dev", "GET", "/lab/unshaped", "")
	keys := r.redis.Keys(t.Context(), "headgate:lab:*").Val()
	for _, key := range keys {
		if ttl := r.redis.TTL(t.Context(), key).Val(); ttl <= 0 {
			t.Errorf("%s stays for ever", key)
		}
	}
	if len(keys) == 0 {
		t.Error("the lab has no keys")
	}
}

// windowOf returns the window of five seconds in which a call was decided.
func windowOf(t *testing.T, result any) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, result.(map[string]any)["at"].(string))
	if err != nil {
		t.Fatal(err)
	}
	return at.Unix() / 5
}

type demo struct{ on bool }

func (d *demo) Unshaped() (bool, string, int64, int64) { return d.on, "unshaped", 1, 2 }
func (d *demo) SetUnshaped(on bool)                    { d.on = on }

func TestUnshaped(t *testing.T) {
	r := newRig(t, redistest.Shared(t), func(c *Config) { c.Demo = &demo{} })
	r.want(200, `"on":false`, "GET", "/lab/unshaped", "")
	r.want(200, `"on":true`, "POST", "/lab/unshaped", `{"on":true}`)
	r.want(200, `{"on":true,"tenant":"unshaped","sent":1,"rejected":2}`, "GET", "/lab/unshaped", "")
	r.want(200, `"demo":true`, "GET", "/session", "")
}

// TestLabPlaces: a limiter that delays has places in its line, and says how many are left.
func TestLabPlaces(t *testing.T) {
	r := newRig(t, redistest.Start(t), nil)
	results := r.want(200, "", "POST", "/lab/leaky_bucket_shaping/take", `{"n":10}`).get(t, "results").([]any)
	// One may leave while the others come.
	if first, last := results[0].(map[string]any)["remaining"].(float64), results[9].(map[string]any)["remaining"].(float64); first != 19 || last < 10 || last > 18 {
		t.Errorf("%v places of 20 are left after the first, %v after ten", first, last)
	}
}
