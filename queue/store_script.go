package queue

import (
	_ "embed"
	"fmt"

	"github.com/headgate/headgate/throttle"
)

//go:embed plan.lua
var planLua string

//go:embed lanes.lua
var lanesLua string

//go:embed record.lua
var recordLua string

//go:embed end.lua
var endLua string

// newScript makes a script of a body that reads, decides and plans its writes, which are
// made when it returns (plan.lua), behind what it uses of libraries.
func newScript(body string, libraries ...string) *throttle.Script {
	return throttle.NewScript("return finish(function()\n"+body+"\nend)\n", append([]string{planLua, asynqLua, lanesLua}, libraries...)...)
}

// key is the name of one of our keys for a queue; see lanes.lua for all of them.
func key(queue, name string) string { return "headgate:{" + queue + "}:" + name }

// scriptKeys names the slot of a Cluster; the scripts build the other keys of
// the same slot themselves, as asynq's do.
func scriptKeys(queue string) []string { return []string{key(queue, "waiting")} }

// numbers reads a reply of integers.
func numbers(reply any, n int) ([]int64, error) {
	values, ok := reply.([]any)
	if !ok || len(values) < n {
		return nil, fmt.Errorf("unexpected reply %v", reply)
	}
	out := make([]int64, len(values))
	for i, value := range values {
		switch v := value.(type) {
		case int64:
			out[i] = v
		case string:
			if _, err := fmt.Sscan(v, &out[i]); err != nil {
				return nil, fmt.Errorf("unexpected reply %q: %w", v, err)
			}
		default:
			return nil, fmt.Errorf("unexpected reply %v", reply)
		}
	}
	return out, nil
}
