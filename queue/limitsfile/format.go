package limitsfile

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// Format returns limits as the text of a limits file, sorted by name. Plans are written out
// for each of their tenants. [Parse] reads the same limits from it.
func Format(set limits.Set) ([]byte, error) {
	file := fileText{Queues: map[string]queueText{}, Groups: map[string]groupText{}, Tenants: map[string]tenantText{}}
	for name, q := range set.Queues {
		out := queueText{
			Kinds: q.Kinds, MaxBacklog: q.MaxBacklog, MaxBacklogBytes: q.MaxBacklogBytes, MaxQueue: q.MaxQueue, MaxQueueBytes: q.MaxQueueBytes,
			Conformance: q.Conformance, SendWindows: map[string]string{},
		}
		if q.MaxRetention > 0 {
			out.MaxRetention = q.MaxRetention.String()
		}
		if q.Durability != limits.Primary { // the default
			out.Durability = q.Durability
		}
		for _, l := range q.Limits {
			if l.Queues == nil {
				out.Limits = append(out.Limits, limitOf(l))
			} else if !slices.ContainsFunc(file.Budgets, func(b limitText) bool { return b.Name == l.Name }) {
				file.Budgets = append(file.Budgets, limitOf(l))
			}
		}
		for kind, window := range q.SendWindows {
			out.SendWindows[kind] = window.String()
		}
		if q.Partitions > 1 {
			out.Partitions = q.Partitions
		}
		file.Queues[name] = out
	}
	for name, group := range set.Groups {
		file.Groups[name] = groupText{Limits: group.Limits}
	}
	for name, t := range set.Tenants {
		out := tenantText{Weight: t.Weight, Guarantee: percentOf(t.Guarantee), Group: t.Group, SendWindow: t.SendWindow.String(), Partition: t.Partition, Limits: map[string]map[string]limits.Change{}}
		if t.Weight == 1 {
			out.Weight = 0 // the default
		}
		for queue, changes := range t.Limits {
			for limit, change := range changes {
				if slices.ContainsFunc(file.Budgets, func(b limitText) bool { return b.Name == limit && slices.Contains(b.Queues, queue) }) {
					if out.Budgets == nil {
						out.Budgets = map[string]limits.Change{}
					}
					out.Budgets[limit] = change
					continue
				}
				if out.Limits[queue] == nil {
					out.Limits[queue] = map[string]limits.Change{}
				}
				out.Limits[queue][limit] = change
			}
		}
		file.Tenants[name] = out
	}
	slices.SortFunc(file.Budgets, func(a, b limitText) int { return strings.Compare(a.Name, b.Name) })
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := encoder.Encode(file); err != nil {
		return nil, err
	}
	return b.Bytes(), encoder.Close()
}

// The fields of a limits file, in the order in which they are written.
type (
	fileText struct {
		Queues  map[string]queueText  `yaml:"queues"`
		Budgets []limitText           `yaml:"budgets,omitempty"`
		Groups  map[string]groupText  `yaml:"groups,omitempty"`
		Tenants map[string]tenantText `yaml:"tenants,omitempty"`
	}
	queueText struct {
		Kinds           []string          `yaml:"kinds,omitempty,flow"`
		Limits          []limitText       `yaml:"limits,omitempty"`
		MaxBacklog      int64             `yaml:"max_backlog,omitempty"`
		MaxBacklogBytes int64             `yaml:"max_backlog_bytes,omitempty"`
		MaxQueue        int64             `yaml:"max_queue,omitempty"`
		MaxQueueBytes   int64             `yaml:"max_queue_bytes,omitempty"`
		MaxRetention    string            `yaml:"max_retention,omitempty"`
		Durability      limits.Durability `yaml:"durability,omitempty"`
		Conformance     bool              `yaml:"conformance,omitempty"`
		Partitions      int               `yaml:"partitions,omitempty"`
		SendWindows     map[string]string `yaml:"send_windows,omitempty"`
	}
	limitText struct {
		Name        string             `yaml:"name"`
		Per         []string           `yaml:"per,omitempty,flow"`
		Algorithm   throttle.Algorithm `yaml:"algorithm"`
		Rate        string             `yaml:"rate,omitempty"`
		Burst       int64              `yaml:"burst,omitempty"`
		Capacity    int64              `yaml:"capacity,omitempty"`
		Concurrency int64              `yaml:"concurrency,omitempty"`
		Timezone    string             `yaml:"timezone,omitempty"`
		Unit        string             `yaml:"unit,omitempty"`
		Adaptive    bool               `yaml:"adaptive,omitempty"`
		Ramp        rampText           `yaml:"ramp,omitempty,flow"`
		For         limits.Side        `yaml:"for,omitempty"`
		Queues      []string           `yaml:"queues,omitempty,flow"` // of a budget
	}
	rampText struct {
		From      string `yaml:"from"`
		To        string `yaml:"to"`
		Over      string `yaml:"over"`
		HoldAbove string `yaml:"hold_above,omitempty"`
	}
	groupText struct {
		Limits map[string]map[string]limits.Change `yaml:"limits,omitempty"`
	}
	tenantText struct {
		Weight     float64                             `yaml:"weight,omitempty"`
		Guarantee  string                              `yaml:"guarantee,omitempty"`
		Group      string                              `yaml:"group,omitempty"`
		Limits     map[string]map[string]limits.Change `yaml:"limits,omitempty"`
		Budgets    map[string]limits.Change            `yaml:"budgets,omitempty"`
		SendWindow string                              `yaml:"send_window,omitempty"`
		Partition  int                                 `yaml:"partition,omitempty"`
	}
)

func limitOf(l limits.Limit) limitText {
	out := limitText{
		Name: l.Name, Per: l.Per, Algorithm: l.Algorithm, Burst: l.Burst, Capacity: l.Capacity, Concurrency: l.Concurrency,
		Unit: l.Unit, Adaptive: l.Adaptive, For: l.For, Queues: l.Queues,
	}
	if l.Ramp != nil {
		out.Ramp = rampText{From: l.Ramp.From.String(), To: l.Rate.String(), Over: l.Ramp.Length()}
		out.Ramp.HoldAbove = percentOf(l.Ramp.HoldAbove)
	} else if l.Algorithm != throttle.Concurrency {
		out.Rate = l.Rate.String()
	}
	if l.Location != nil {
		out.Timezone = l.Location.String()
	}
	return out
}

// percentOf is a part in percent; "" for 0, which is left out.
func percentOf(part float64) string {
	if part == 0 {
		return ""
	}
	return limits.Percent(part)
}
