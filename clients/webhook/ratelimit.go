package webhook

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/internal/httpcall"
)

const (
	maxLimit  = 1_000_000_000
	maxWindow = 31 * 24 * time.Hour
)

// QuotaOf returns what the headers of an answer say of the receiver's limit on requests; nil if
// they say nothing of it. These forms are known, of draft-ietf-httpapi-ratelimit-headers and of
// what was there before:
//
//	RateLimit-Policy: "burst";q=10;w=1, "daily";q=1000;w=86400     drafts 8 to 10
//	RateLimit: "burst";r=3;t=1
//
//	RateLimit-Policy: 10;w=1                                       draft 7
//	RateLimit: limit=10, remaining=3, reset=1
//
//	RateLimit-Limit: 10, 10;w=1                                    earlier drafts
//	RateLimit-Remaining: 3
//
//	X-RateLimit-Remaining: 3
//
// Of several limits it is the one with the shortest window: calls may come at its rate until a
// longer window is used up, which the receiver says with 429 and Retry-After.
func QuotaOf(header http.Header) *clients.Quota {
	q := clients.Quota{Name: "requests"}
	other := map[string]bool{} // the names of limits on something else than requests
	windows := map[string]time.Duration{}
	for _, policy := range append(items(header, "Ratelimit-Policy"), items(header, "Ratelimit-Limit")...) {
		limit := policy.Value
		if _, isNumber := limit.(int64); !isNumber {
			limit, _ = policy.Params.Get("q")
			if unit, ok := policy.Params.Get("qu"); ok && unit != "requests" {
				other[fmt.Sprint(policy.Value)] = true
				continue
			}
		}
		seconds, _ := policy.Params.Get("w")
		n, window := within(limit, maxLimit), time.Duration(within(seconds, int64(maxWindow/time.Second)))*time.Second
		windows[fmt.Sprint(policy.Value)] = window
		if n > 0 && window > 0 && (q.Window == 0 || window < q.Window) {
			q.Limit, q.Window = n, window
		}
	}
	left := func(value any) {
		if n := within(value, maxLimit); n >= 0 && (q.Remaining == nil || n < *q.Remaining) {
			q.Remaining = &n
		}
	}
	for _, limit := range httpcall.ParseRateLimit(header.Values("Ratelimit")) {
		if !other[limit.Name] && windows[limit.Name] <= q.Window {
			left(limit.Remaining)
		}
	}
	for _, name := range []string{"Ratelimit-Remaining", "X-Ratelimit-Remaining"} {
		if n, err := strconv.ParseInt(strings.TrimSpace(header.Get(name)), 10, 64); err == nil {
			left(n)
		}
	}
	if q.Limit == 0 && q.Remaining == nil {
		return nil
	}
	return &q
}

// items returns the items of a header that is a list; none if it is not one.
func items(header http.Header, name string) (items []httpsfv.Item) {
	list, err := httpsfv.UnmarshalList(header.Values(name))
	if err != nil {
		return nil
	}
	for _, member := range list {
		if item, ok := member.(httpsfv.Item); ok {
			items = append(items, item)
		}
	}
	return items
}

// within returns a whole number of 0 to most, or -1 if value is none.
func within(value any, most int64) int64 {
	if n, ok := value.(int64); ok && n >= 0 && n <= most {
		return n
	}
	return -1
}
