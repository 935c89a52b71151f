package queue

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/throttle"
)

const mostAttributes = 16

const mostUnits = 8

const mostCost = 1 << 40

// encodeAttributes writes "name=value;…", escaped and sorted, or says what is wrong.
func encodeAttributes(attributes map[string]string) (text, problem string) {
	if len(attributes) > mostAttributes {
		return "", fmt.Sprintf("%d are more than %d", len(attributes), mostAttributes)
	}
	parts := make([]string, 0, len(attributes))
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if !attrPattern.MatchString(name) || name == "tenant" || name == "kind" || name == attrEndpoint {
			return "", fmt.Sprintf("the name %s is not 1 to 64 of a-z, 0-9 and '_', or is tenant, kind or endpoint", quote(name))
		}
		if reason := textProblem(attributes[name], mostTenant); reason != "" {
			return "", name + ": " + reason
		}
		parts = append(parts, name+"="+throttle.Escape(attributes[name]))
	}
	return strings.Join(parts, ";"), ""
}

// encodeCosts writes "unit=n;…", sorted, or says what is wrong.
func encodeCosts(costs map[string]int64) (text, problem string) {
	if len(costs) > mostUnits {
		return "", fmt.Sprintf("%d are more than %d", len(costs), mostUnits)
	}
	parts := make([]string, 0, len(costs))
	for _, unit := range slices.Sorted(maps.Keys(costs)) {
		if !attrPattern.MatchString(unit) {
			return "", fmt.Sprintf("the unit %s is not 1 to 64 of a-z, 0-9 and '_'", quote(unit))
		}
		if n := costs[unit]; n < 0 || n > mostCost {
			return "", fmt.Sprintf("%s: %d is not within 0 to %d", unit, n, int64(mostCost))
		}
		parts = append(parts, fmt.Sprintf("%s=%d", unit, costs[unit]))
	}
	return strings.Join(parts, ";"), ""
}

// nothing is no costs of every unit.
func nothing(costs map[string]int64) string {
	none := make(map[string]int64, len(costs))
	for unit := range costs {
		none[unit] = 0
	}
	text, _ := encodeCosts(none) // the units were accepted once
	return text
}

// decodeCosts is the way back; what cannot be read is left out.
func decodeCosts(text string) map[string]int64 {
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
