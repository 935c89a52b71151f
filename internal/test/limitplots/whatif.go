package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/arrivals"
	"github.com/headgate/headgate/internal/test/svg"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// playWhatIf tries a higher rate for each tenant under an account that all share: one sends a campaign, others a job now
// and then.
func playWhatIf(ctx context.Context, client *redis.Client) ([]byte, error) {
	const queue, account, before, after = "mail", 50, 10, 40
	of := func(rate int64) limits.Set {
		return limits.Set{Queues: map[string]limits.Queue{queue: {Kinds: []string{"call"}, Limits: []limits.Limit{
			{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(rate), Burst: 20, Per: []string{"tenant"}},
			{Name: "account", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(account)},
		}}}}
	}
	if err := operate.Publish(ctx, client, of(before)); err != nil {
		return nil, err
	}
	began := time.Unix(1_800_000_000, 0)
	var calls []arrivals.Call
	for range 900 {
		calls = append(calls, arrivals.Call{Tenant: "campaign", Came: began})
	}
	for shop, each := range []int{3, 6, 12} { // so many a second, for a minute
		for i := range 60 * each {
			calls = append(calls, arrivals.Call{Tenant: fmt.Sprint("shop ", 1+shop), Came: began.Add(time.Duration(i) * time.Second / time.Duration(each))})
		}
	}
	if err := arrivals.Put(ctx, client, queue, calls...); err != nil {
		return nil, err
	}
	trial, err := inspect.Try(ctx, client, queue, of(after), inspect.TrialQuery{N: inspect.MaxTrial})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(trial.Tenants, func(a, b inspect.TrialTenant) int { return strings.Compare(a.Tenant, b.Tenant) })
	return whatIfSVG(fmt.Sprintf("%d/s instead of %d/s for each tenant, under an account of %d/s", after, before, account), trial), nil
}

// whatIfSVG draws how long 95 % of each tenant's jobs waited, under the limits in force and under others.
func whatIfSVG(title string, trial inspect.Trial) []byte {
	const row, first = 56, 84
	tall := first + row*len(trial.Tenants)
	most := time.Duration(0)
	for _, of := range trial.Tenants {
		most = max(most, of.InForce.P95, of.Proposed.P95)
	}
	show := func(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }
	var says []string
	for _, of := range trial.Tenants {
		says = append(says, fmt.Sprintf("%s: %s, then %s.", of.Tenant, show(of.InForce.P95), show(of.Proposed.P95)))
	}
	sheet := svg.New(width, tall, title, fmt.Sprintf(`How long 95 of 100 jobs wait. %s`, strings.Join(says, " ")))
	line := sheet.Line
	line(`<text class="dim" x="12" y="46">how long 95 of 100 jobs wait, <tspan class="tn">now</tspan> and <tspan class="tw">then</tspan></text>`)
	for i, of := range trial.Tenants {
		y := first + row*i
		line(`<text x="12" y="%d">%s</text>`, y+9, of.Tenant)
		for k, bar := range []struct {
			class string
			wait  time.Duration
			by    string
		}{{"no", of.InForce.P95, of.HeldBy}, {"went", of.Proposed.P95, of.WouldHoldBy}} {
			at, from := y+18*k, 100
			to := from + int(float64(right-from)*float64(bar.wait)/float64(most))
			text := show(bar.wait)
			if bar.by != "" {
				text += ", " + bar.by
			}
			line(`<path class="%s" style="stroke-width:10" d="M%d %dH%d"/><text class="dim" x="%d" y="%d">%s</text>`, bar.class, from, at, max(to, from+2), max(to, from+2)+8, at+5, text)
		}
	}
	return sheet.Bytes()
}
