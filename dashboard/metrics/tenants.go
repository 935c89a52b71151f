package metrics

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/check"
)

// Tenants selects the tenants that have series. The zero value means none: series for each of
// 100,000 tenants would be too many for Prometheus.
type Tenants struct {
	Top   int      // number of tenants with the longest backlog
	Named []string // tenants by name, even if no job of them waits
}

// MaxTenants is the max number of tenants with series.
const MaxTenants = 1000

const longestTenant = 128 // bytes, as in a job

// ParseTenants parses "" (none), "top:N" or "list:NAME,NAME,…", in which a comma or a percent
// sign in a name is %2C or %25.
func ParseTenants(text string) (Tenants, error) {
	kind, rest, _ := strings.Cut(text, ":")
	switch kind {
	case "":
		if text == "" {
			return Tenants{}, nil
		}
	case "top":
		n, err := strconv.Atoi(rest)
		if err != nil || n < 1 || n > MaxTenants {
			return Tenants{}, fmt.Errorf("top: %s must be a number from 1 to %d", check.Quote(rest), MaxTenants)
		}
		return Tenants{Top: n}, nil
	case "list":
		return parseNames(rest)
	}
	return Tenants{}, fmt.Errorf("%s is not a selection of tenants: must be top:N, list:NAME,NAME or nothing", check.Quote(text))
}

func parseNames(text string) (Tenants, error) {
	var t Tenants
	for part := range strings.SplitSeq(text, ",") {
		name, err := url.PathUnescape(part)
		switch {
		case err != nil:
			return Tenants{}, fmt.Errorf("list: %s: write a percent sign as %%25", check.Quote(part))
		case name == "":
			return Tenants{}, fmt.Errorf("list: a name is empty: write names of tenants separated by commas")
		case len(name) > longestTenant || !utf8.ValidString(name):
			return Tenants{}, fmt.Errorf("list: %s is not a tenant's name: names have at most %d bytes of UTF-8", check.Quote(name), longestTenant)
		}
		t.Named = append(t.Named, name)
	}
	slices.Sort(t.Named)
	if t.Named = slices.Compact(t.Named); len(t.Named) > MaxTenants {
		return Tenants{}, fmt.Errorf("list: %d tenants; the maximum is %d", len(t.Named), MaxTenants)
	}
	return t, nil
}
