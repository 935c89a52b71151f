package api

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/limitsfile"
	"github.com/headgate/headgate/queue/operate"
)

const (
	maxLimitsFile = 1 << 20
	defaultTrial  = 20 // tenants
	maxMistake    = 500
	maxTrials     = 2 // at once: each takes a few seconds of processor time for a million calls
)

type (
	publishedJSON struct {
		File string `json:"file"`
	}
	trialBody struct {
		File   string `json:"file"`
		Tenant string `json:"tenant,omitempty"`
		N      *int   `json:"n,omitempty"`
	}
	trialJSON struct {
		From       moment            `json:"from,omitzero"`
		To         moment            `json:"to,omitzero"`
		Calls      int               `json:"calls"`
		Jobs       int               `json:"jobs"`
		Measured   waitingJSON       `json:"measured"`
		InForce    outcomeJSON       `json:"in_force"`
		Proposed   outcomeJSON       `json:"proposed"`
		Tenants    []trialTenantJSON `json:"tenants"`
		Total      int               `json:"total"`
		NotCounted []string          `json:"not_counted"`
		FullRate   []string          `json:"full_rate"`
	}
	waitingJSON struct {
		P50 float64 `json:"p50_seconds"`
		P95 float64 `json:"p95_seconds"`
		P99 float64 `json:"p99_seconds"`
		Max float64 `json:"max_seconds"`
	}
	outcomeJSON struct {
		waitingJSON
		Limits []trialLimitJSON `json:"limits"`
	}
	trialLimitJSON struct {
		Name    string   `json:"name"`
		Used    *float64 `json:"used,omitempty"`
		Held    float64  `json:"held_seconds"`
		Tenants int      `json:"tenants"`
	}
	trialTenantJSON struct {
		Tenant      string      `json:"tenant"`
		Jobs        int         `json:"jobs"`
		Measured    waitingJSON `json:"measured"`
		InForce     waitingJSON `json:"in_force"`
		Proposed    waitingJSON `json:"proposed"`
		HeldBy      string      `json:"held_by,omitempty"`
		WouldHoldBy string      `json:"would_hold_by,omitempty"`
	}
)

// try says how the jobs of the last day would have waited under other limits.
func (a *API) try(r *request) (answer, error) {
	body, err := decodeUpTo[trialBody](r, maxLimitsFile)
	if err != nil {
		return answer{}, err
	}
	query := inspect.TrialQuery{Tenant: body.Tenant, N: defaultTrial}
	if body.N != nil {
		query.N = *body.N
	}
	release, err := a.trials.take(r.caller) // reading a large file takes time, too
	if err != nil {
		return answer{}, err
	}
	defer release()
	set, err := parseLimits(body.File)
	if err != nil {
		return answer{}, err
	}
	t, err := inspect.Try(r.Context(), a.config.Redis, r.PathValue("q"), set, query)
	if err != nil {
		return answer{}, err
	}
	return answer{body: trialOf(t)}, nil
}

// parseLimits reads a limits file, and reports its first mistakes with their lines.
func parseLimits(text string) (limits.Set, error) {
	set, err := limitsfile.Parse([]byte(text))
	mistakes, ok := errors.AsType[*limitsfile.Error](err)
	if err == nil || !ok {
		if err != nil {
			err = invalid("file", "%v", err)
		}
		return set, err
	}
	p := newProblem(http.StatusBadRequest, codeInvalid, "The limits file has mistakes.")
	var fields []fieldError
	for _, mistake := range mistakes.Problems {
		field := "file"
		if mistake.Line > 0 {
			field = fmt.Sprintf("file:%d", mistake.Line)
		}
		mistake.Line = 0
		fields = append(fields, fieldError{field, check.Printable(mistake.String(), maxMistake)})
	}
	p.Errors, _ = listed(fields, "", check.MaxErrors)
	return limits.Set{}, p
}

func trialOf(t inspect.Trial) trialJSON {
	out := trialJSON{
		From: moment{t.From}, To: moment{t.To}, Calls: t.Calls, Jobs: t.Jobs, Measured: waitingOf(t.Measured),
		InForce: outcomeOf(t.InForce), Proposed: outcomeOf(t.Proposed), Tenants: []trialTenantJSON{}, Total: t.Total, NotCounted: list(t.NotCounted), FullRate: list(t.FullRate),
	}
	for _, of := range t.Tenants {
		out.Tenants = append(out.Tenants, trialTenantJSON{
			of.Tenant, of.Jobs, waitingOf(of.Measured), waitingOf(of.InForce), waitingOf(of.Proposed), of.HeldBy, of.WouldHoldBy,
		})
	}
	return out
}

func waitingOf(w inspect.Waiting) waitingJSON {
	in := func(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }
	return waitingJSON{in(w.P50), in(w.P95), in(w.P99), in(w.Max)}
}

func outcomeOf(o inspect.Outcome) outcomeJSON {
	out := outcomeJSON{waitingJSON: waitingOf(o.Waiting), Limits: []trialLimitJSON{}}
	for _, l := range o.Limits {
		one := trialLimitJSON{Name: l.Name, Held: math.Round(l.Held.Seconds()*1000) / 1000, Tenants: l.Tenants}
		if !math.IsNaN(l.Used) {
			one.Used = &l.Used
		}
		out.Limits = append(out.Limits, one)
	}
	return out
}

// limitsFile serves the published limits of a queue as a limits file, with the queues that share a budget with it.
func (a *API) limitsFile(r *request) (answer, error) {
	set, err := operate.PublishedTogether(r.Context(), a.config.Redis, r.PathValue("q"))
	if err != nil {
		return answer{}, err
	}
	for name := range set.Queues {
		if !r.caller.mayQueue(name) {
			return answer{}, forbid("queue "+clip(name), "The file has other queues, which share a budget with this one, and the key is not valid for them.")
		}
	}
	text, err := limitsfile.Format(set)
	if err != nil {
		return answer{}, err
	}
	return answer{body: publishedJSON{string(text)}}, nil
}
