package throttle

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/test/redistest"
)

// logCutsScript takes one permit in each of five µs of a sliding window log for five permits in a second, and then gives
// back those of ARGV, in this order, in one run. It returns when 3, 4 and 5 permits go again, in µs after the first
// moment, and the moments that are stored in the end.
var logCutsScript = limitlua.NewScript(`
local limit, first = {a = 'sl', b = 5, w = 1000000, ahead = 1000000}, 1700000000000000
local log = limit_open(limit, KEYS[1], first)
for t = 0, 4 do limit_commit(limit, log, first + t, first + t, 1) end
limit_save(log, first + 4)
local now = first + 5
log = limit_open(limit, KEYS[1], now)
for _, t in ipairs(ARGV) do limit_refund(limit, log, now, first + t, 1) end
local out = {}
for n = 3, 5 do out[#out + 1] = limit_earliest(limit, log, now, now, n) - first end
limit_save(log, now)
for i = 2, redis.call('LLEN', KEYS[1]) do out[#out + 1] = redis.call('LINDEX', KEYS[1], i - 1) - first end
return out`)

// TestLogGivesBackInAnyOrder: the permits of a log that come back while it is open are left out, whatever the order in
// which they come back.
func TestLogGivesBackInAnyOrder(t *testing.T) {
	client := redistest.Shared(t).Client()
	c := newClocked(t, client, logged("5/s"))
	for _, order := range []string{"1 3", "3 1"} {
		var args []any
		for t := range strings.FieldsSeq(order) {
			args = append(args, t)
		}
		reply, err := logCutsScript.Run(t.Context(), client, []string{c.prefix + ":" + order}, args...)
		// 0, 2 and 4 are left, and go a second after they came.
		if want := "[1000000 1000002 1000004 0 2 4]"; err != nil || fmt.Sprint(reply) != want {
			t.Errorf("%s: %v, %v; want %s", order, reply, err, want)
		}
	}
}
