package store

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/limits"
)

const maxAttributes = 16

const maxUnits = 8

const MaxCost = 1 << 40

// EncodeAttributes returns "name=value;…", escaped and sorted, or a text that says what
// is wrong.
func EncodeAttributes(attributes map[string]string) (text, problem string) {
	if len(attributes) > maxAttributes {
		return "", fmt.Sprintf("%d; the maximum is %d", len(attributes), maxAttributes)
	}
	parts := make([]string, 0, len(attributes))
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		switch {
		case name == "tenant" || name == "kind":
			return "", name + " is a field of the job; leave it out here"
		case name == limits.GroupAttribute:
			return "", name + " is set for the tenant in the limits file; leave it out here"
		case name == limits.EndpointAttribute:
			return "", name + " is taken from the payload; leave it out here"
		case !check.AttributePattern.MatchString(name):
			return "", fmt.Sprintf("the name %s is not 1 to 64 of a-z, 0-9 and '_'", check.Quote(name))
		}
		if reason := check.Text(attributes[name], check.MaxTenant); reason != "" {
			return "", name + ": " + reason
		}
		parts = append(parts, name+"="+rediskey.Escape(attributes[name]))
	}
	return strings.Join(parts, ";"), ""
}

// EncodeCosts returns "unit=n;…", sorted, or a text that says what is wrong.
func EncodeCosts(costs map[string]int64) (text, problem string) {
	if len(costs) > maxUnits {
		return "", fmt.Sprintf("%d; the maximum is %d", len(costs), maxUnits)
	}
	parts := make([]string, 0, len(costs))
	for _, unit := range slices.Sorted(maps.Keys(costs)) {
		if !check.AttributePattern.MatchString(unit) {
			return "", fmt.Sprintf("the unit %s is not 1 to 64 of a-z, 0-9 and '_'", check.Quote(unit))
		}
		if n := costs[unit]; n < 0 || n > MaxCost {
			return "", fmt.Sprintf("%s: %d must be 0 to %d", unit, n, int64(MaxCost))
		}
		parts = append(parts, fmt.Sprintf("%s=%d", unit, costs[unit]))
	}
	return strings.Join(parts, ";"), ""
}

// NoCosts returns encoded costs of 0 for each unit of costs.
func NoCosts(costs map[string]int64) string {
	none := make(map[string]int64, len(costs))
	for unit := range costs {
		none[unit] = 0
	}
	text, _ := EncodeCosts(none) // the units were accepted before
	return text
}

// DecodeCosts reads what [EncodeCosts] writes. It leaves out what it cannot read.
func DecodeCosts(text string) map[string]int64 {
	if text == "" {
		return nil
	}
	costs := map[string]int64{}
	for part := range strings.SplitSeq(text, ";") {
		unit, number, _ := strings.Cut(part, "=")
		if n, err := strconv.ParseInt(number, 10, 64); err == nil {
			costs[unit] = n
		}
	}
	return costs
}
