package api

import (
	"maps"
	"time"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/operate"
)

// MaxConformanceHours is the maximum number of hours in one report of conformance.
const MaxConformanceHours = 30 * 24

const (
	defaultConformance = 100 // buckets
	conformanceHours   = 24
	maxReports         = 4 // at once: each takes seconds of processor time for 30 days of 10,000 tenants
)

type (
	conformanceJSON struct {
		Counts  bool         `json:"counts"`
		From    moment       `json:"from"`
		To      moment       `json:"to"`
		Buckets []bucketJSON `json:"buckets"`
		Total   int          `json:"total"`
		Missed  []moment     `json:"missed"`
	}
	bucketJSON struct {
		Limit  string            `json:"limit"`
		Values map[string]string `json:"values"`
		Window float64           `json:"window_seconds,omitempty"`
		Hours  []hourJSON        `json:"hours"`
	}
	hourJSON struct {
		At      moment         `json:"at"`
		Most    int64          `json:"most"`
		Allowed int64          `json:"allowed"`
		Over    *violationJSON `json:"over,omitempty"`
	}
	violationJSON struct {
		At      moment      `json:"at"`
		Took    int64       `json:"took"`
		Allowed int64       `json:"allowed"`
		Causes  []causeJSON `json:"causes"`
	}
	causeJSON struct {
		What   string `json:"what"`
		At     moment `json:"at"`
		Actor  string `json:"actor,omitempty"`
		Reason string `json:"reason,omitempty"`
		Before string `json:"before,omitempty"`
		After  string `json:"after,omitempty"`
	}
)

// conformance says how the calls of a queue kept to its limits in the last hours.
func (a *API) conformance(r *request) (answer, error) {
	n, err := number(r, "n", defaultConformance, inspect.MaxConformance)
	if err != nil {
		return answer{}, err
	}
	hours, err := number(r, "hours", conformanceHours, MaxConformanceHours)
	if err != nil {
		return answer{}, err
	}
	if hours == 0 {
		return answer{}, invalid("hours", "0 must be 1 to %d", MaxConformanceHours)
	}
	release, err := a.reports.take(r.caller)
	if err != nil {
		return answer{}, err
	}
	defer release()
	to := time.Now().UTC()
	query := inspect.ConformanceQuery{From: to.Add(-time.Duration(hours-1) * time.Hour).Truncate(time.Hour), To: to, Tenant: r.param("tenant"), Limit: r.param("limit"), N: n}
	c, err := inspect.ReadConformance(r.Context(), a.config.Redis, r.PathValue("q"), query)
	if err == nil {
		err = operate.NameCauses(r.Context(), a.config.Redis, r.PathValue("q"), &c)
	}
	if err != nil {
		return answer{}, err
	}
	out := conformanceJSON{Counts: c.Counts, From: moment{query.From}, To: moment{query.To}, Total: c.Total, Buckets: []bucketJSON{}, Missed: []moment{}}
	for _, at := range c.Missed {
		out.Missed = append(out.Missed, moment{at})
	}
	for _, b := range c.Buckets {
		out.Buckets = append(out.Buckets, bucketOf(b))
	}
	return answer{body: out}, nil
}

func bucketOf(b inspect.ConformanceBucket) bucketJSON {
	out := bucketJSON{Limit: b.Limit, Values: maps.Clone(b.Values), Window: b.Window.Seconds(), Hours: []hourJSON{}}
	for _, hour := range b.Hours {
		h := hourJSON{At: moment{hour.At}, Most: hour.Most, Allowed: hour.Allowed}
		if over := hour.Over; over != nil {
			h.Over = &violationJSON{At: moment{over.At}, Took: over.Took, Allowed: over.Allowed, Causes: []causeJSON{}}
			for _, c := range over.Causes {
				h.Over.Causes = append(h.Over.Causes, causeJSON{string(c.What), moment{c.At}, c.Actor, c.Reason, c.Before, c.After})
			}
		}
		out.Hours = append(out.Hours, h)
	}
	return out
}
