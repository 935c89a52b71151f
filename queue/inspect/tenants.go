package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/validation"
)

// TenantSort is the order in which tenants are listed.
type TenantSort string

// The orders. Tenants that are equal come in the order of their names.
const (
	ByWaiting TenantSort = "waiting" // number of waiting jobs
	ByTenant  TenantSort = "tenant"  // the name
	ByDrains  TenantSort = "drains"  // when the last waiting job will have gone: none waiting comes first, not known last
	ByWeight  TenantSort = "weight"  // the weight in shared limits
)

// TenantFilter selects tenants by their state.
type TenantFilter string

// The filters.
const (
	OnlyWaiting    TenantFilter = "waiting"    // with waiting jobs
	OnlyPaused     TenantFilter = "paused"     // with a pause of their own
	OnlyOverridden TenantFilter = "overridden" // with a limit that an operator changed
	OnlyOwn        TenantFilter = "own"        // with limits, a weight, a guarantee, a group or a send window of their own in the limits file
)

// TenantQuery selects and orders tenants of a queue.
type TenantQuery struct {
	Search    string       // part of the name, in any case; "": all
	Only      TenantFilter // "": all
	Sort      TenantSort   // "" means ByWaiting
	Ascending bool         // the least first; otherwise the most first

	Offset int // of the first tenant
	Limit  int // number of tenants, at most 200; 0 means 50
}

const (
	DefaultTenants = 50
	MaxTenants     = 200
	maxSearch      = 3 * check.MaxTenant
)

// Check sets the defaults of a query, and returns the errors for the fields that cannot be
// accepted, joined.
func (q *TenantQuery) Check() error {
	q.Sort, q.Limit = cmp.Or(q.Sort, ByWaiting), cmp.Or(q.Limit, DefaultTenants)
	var errs []error
	wrong := func(field, format string, args ...any) {
		errs = append(errs, validation.Field(field, fmt.Sprintf(format, args...)))
	}
	if !slices.Contains([]TenantSort{ByWaiting, ByTenant, ByDrains, ByWeight}, q.Sort) {
		wrong("sort", "%s is not one of waiting, tenant, drains, weight", check.Quote(string(q.Sort)))
	}
	if !slices.Contains([]TenantFilter{"", OnlyWaiting, OnlyPaused, OnlyOverridden, OnlyOwn}, q.Only) {
		wrong("only", "%s is not one of waiting, paused, overridden, own", check.Quote(string(q.Only)))
	}
	if q.Offset < 0 {
		wrong("offset", "%d is negative", q.Offset)
	}
	if q.Limit < 0 || q.Limit > MaxTenants {
		wrong("limit", "%d must be 1 to %d", q.Limit, MaxTenants)
	}
	if len(q.Search) > maxSearch {
		wrong("search", "%d bytes; the maximum is %d", len(q.Search), maxSearch)
	}
	return errors.Join(errs...)
}

// TenantPage is a part of a queue's tenants.
type TenantPage struct {
	Now     time.Time
	Total   int64 // number of tenants that match
	Tenants []TenantRow
}

// TenantRow is a tenant in one queue.
type TenantRow struct {
	Outlook

	Done        int64     // calls that succeeded, ever
	Stored      int64     // its jobs in all states, which max_backlog counts
	StoredBytes int64     // their size
	Weight      float64   // its part of shared limits, relative to others' weights
	Next        time.Time // when its own limits and pauses next admit a job; zero: no job waits, or not known

	// Limit is the limit that holds it, or if none does the tightest of its own; "" for
	// none. Level is how many permits its bucket has now, negative if permits were given
	// ahead. Capacity is how many it has when full.
	Limit           string
	Level, Capacity float64

	Pauses     []Pause // pauses that hold all its jobs: those of the whole queue, and its own
	Overridden bool    // an operator changed a limit for it

	// Own is what was published for this tenant alone: "weight", "guarantee", "in group", "send_window", and limits by name,
	// with "limit " in front of one that has the name of a setting.
	Own map[string]string
}

// Is reports whether a filter selects the tenant.
func (t TenantRow) Is(only TenantFilter) bool {
	switch only {
	case OnlyWaiting:
		return t.Waiting > 0
	case OnlyPaused:
		return slices.ContainsFunc(t.Pauses, func(p Pause) bool { return p.Tenant == t.Tenant })
	case OnlyOverridden:
		return t.Overridden
	case OnlyOwn:
		return len(t.Own) > 0
	}
	return true
}

// ListTenants returns the tenants that a queue knows: those with waiting or completed
// jobs, with limits of their own, or with pauses. Their names and order are read in
// pieces, in at most a fiftieth of the time, so the order of 100,000 tenants may be half
// a minute old. Tenants whose partition does not answer are left out. The rows themselves are current. Errors: [validation.Error].
func (in *Inspector) ListTenants(ctx context.Context, queue string, q TenantQuery) (TenantPage, error) {
	if err := q.Check(); err != nil {
		return TenantPage{}, err
	}
	if err := store.CheckQueue(ctx, in.redis, queue); err != nil {
		return TenantPage{}, err
	}
	page, err := in.tenantPage(ctx, queue, q)
	if err != nil {
		return TenantPage{}, fmt.Errorf("tenants of queue %q: %w", queue, err)
	}
	return page, nil
}

// Tenants lists the tenants of [Inspector.ListTenants] in all pages, of q.Limit each; 0 means [MaxTenants]. A tenant comes
// once, also if the order changes between two pages.
func (in *Inspector) Tenants(ctx context.Context, queue string, q TenantQuery) iter.Seq2[TenantRow, error] {
	q.Limit = cmp.Or(q.Limit, MaxTenants)
	return func(yield func(TenantRow, error) bool) {
		seen := map[string]bool{}
		for q := q; ; q.Offset += q.Limit {
			page, err := in.ListTenants(ctx, queue, q)
			if err != nil {
				yield(TenantRow{}, err)
				return
			}
			for _, t := range page.Tenants {
				if !seen[t.Tenant] && !yield(t, nil) {
					return
				}
				seen[t.Tenant] = true
			}
			if len(page.Tenants) < q.Limit {
				return
			}
		}
	}
}

// tenantPage merges the orders of the partitions, and reads the tenants of the page in theirs.
func (in *Inspector) tenantPage(ctx context.Context, queue string, q TenantQuery) (TenantPage, error) {
	_, homes, err := in.answering(ctx, queue)
	if err != nil {
		return TenantPage{}, err
	}
	orders, err := ofEach(homes, func(home string) (order []ranked, err error) {
		known, err := in.tenantList(ctx, home)
		if err == nil {
			err = in.ask(ctx, home, func(f *forecast) (err error) {
				order, err = known.order(q, f)
				return err
			})
		}
		return order, err
	})
	if err != nil {
		return TenantPage{}, err
	}
	page := TenantPage{}
	for _, order := range orders {
		page.Total += int64(len(order))
	}
	escaped, places := map[string][]string{}, map[string][]int{} // of the page, by partition
	n := 0
	for i := range q.Offset + q.Limit {
		first := firstOf(orders, q.compare)
		if first < 0 {
			break
		}
		if i >= q.Offset {
			home := homes[first]
			escaped[home], places[home] = append(escaped[home], orders[first][0].escaped), append(places[home], n)
			n++
		}
		orders[first] = orders[first][1:]
	}
	page.Tenants = make([]TenantRow, n)
	read, err := ofEach(homes, func(home string) (now time.Time, err error) {
		if escaped[home] == nil && home != homes[0] {
			return now, nil
		}
		known, err := in.tenantList(ctx, home)
		if err != nil {
			return now, err
		}
		err = in.ask(ctx, home, func(f *forecast) error {
			rows, err := f.tenantRows(ctx, in.redis, known, escaped[home])
			for i, row := range rows {
				page.Tenants[places[home][i]] = row
			}
			now = f.asked
			return err
		})
		return now, err
	})
	if err != nil {
		return TenantPage{}, err
	}
	page.Now = slices.MaxFunc(read, time.Time.Compare)
	return page, nil
}

// firstOf returns which of some ordered lists has the least first entry; -1 if all are empty.
func firstOf[T any](lists [][]T, compare func(a, b T) int) int {
	first := -1
	for i, list := range lists {
		if len(list) > 0 && (first < 0 || compare(list[0], lists[first][0]) < 0) {
			first = i
		}
	}
	return first
}

// tenantRows reads the current state of some tenants.
func (f *forecast) tenantRows(ctx context.Context, client redis.UniversalClient, known *tenantList, names []string) ([]TenantRow, error) {
	if err := f.focus(ctx, client, known, names...); err != nil {
		return nil, err
	}
	run, err := f.all()
	if err != nil || len(names) == 0 {
		return nil, err
	}
	lanes, widest := map[string][]string{}, map[string]*lane{}
	for _, name := range names {
		lanes[name] = nil
	}
	for i := range f.lanes {
		l := &f.lanes[i]
		mine, wanted := lanes[l.Tenant]
		if wanted && l.jobs > 0 && len(mine) < maxLanesOfOne {
			lanes[l.Tenant] = append(mine, l.Name)
		}
		if known := widest[l.Tenant]; wanted && (known == nil || l.jobs > known.jobs) {
			widest[l.Tenant] = l
		}
	}
	pipe := client.Pipeline()
	counted := pipe.HMGet(ctx, store.TenantsKey(f.queue), names...)
	due, ready := map[string]*redis.FloatSliceCmd{}, map[string]*redis.Cmd{}
	for tenant, names := range lanes {
		if len(names) == 0 {
			continue
		}
		due[tenant] = pipe.ZMScore(ctx, store.Key(f.queue, "waiting"), names...)
		// ZMScore returns 0 for a lane that is not there, which is a virtual time, too.
		args := []any{"ZMSCORE", store.Key(f.queue, "ready")}
		for _, name := range names {
			args = append(args, name)
		}
		ready[tenant] = pipe.Do(ctx, args...)
	}
	if err := store.Execute(ctx, pipe); err != nil {
		return nil, err
	}
	counts := store.ReadAllCounts(names, counted)
	outlooks := f.outlooks(run.members, names...)
	pauses := map[string][]Pause{}
	var common []Pause
	for _, pause := range pausesInForce(f.pauses, f.asked) {
		switch {
		case pause.Kind != "" || pause.Endpoint != "": // does not hold all jobs of a tenant
		case pause.Tenant == "":
			common = append(common, pause)
		default:
			pauses[pause.Tenant] = append(pauses[pause.Tenant], pause)
		}
	}
	rows := make([]TenantRow, len(names))
	for i, name := range names {
		row := TenantRow{Outlook: outlooks[name], Weight: f.limits.Weight(name), Own: f.limits.Own(name)}
		row.Done, row.Stored, row.StoredBytes = counts[name].Done, counts[name].Jobs, counts[name].Bytes
		row.Pauses = slices.Concat(common, pauses[row.Tenant])
		for limit := range f.limits.Overrides[name] {
			_, in := f.limits.Override(limit, name)
			row.Overridden = row.Overridden || in
		}
		if row.Waiting > 0 {
			row.Next = f.nextOf(due[name], ready[name])
			switch {
			case row.Unserved != nil || row.Pause != nil && row.Pause.Until.IsZero():
				row.Next = time.Time{}
			case row.Pause != nil && row.Pause.Until.After(row.Next):
				row.Next = row.Pause.Until
			}
		}
		if l := widest[name]; l != nil {
			f.fillLevel(&row, l)
		}
		rows[i] = row
	}
	return rows, nil
}

// nextOf returns when the first of some lanes is due. A lane that is ready has no time:
// it waits only for shared limits and may go as soon as these admit it. A lane that is neither waits
// until a call ends, which is not known.
func (f *forecast) nextOf(due *redis.FloatSliceCmd, ready *redis.Cmd) time.Time {
	if due == nil {
		return f.asked
	}
	starts, _ := ready.Slice()
	next := math.Inf(1)
	for i, micros := range due.Val() {
		switch {
		case micros > 0:
			next = min(next, micros)
		case i < len(starts) && starts[i] != nil:
			next = 0
		}
	}
	switch {
	case math.IsInf(next, 1):
		return time.Time{}
	case int64(next) < f.asked.UnixMicro():
		return f.asked
	}
	return time.UnixMicro(int64(next))
}

// fillLevel sets the state of a lane's bucket of the limit that matters most.
func (f *forecast) fillLevel(row *TenantRow, l *lane) {
	at := f.limitOf(l.Tenant, row.HeldBy)
	if at < 0 {
		return
	}
	b, _, err := f.bucket(at, l, f.spec(at, l))
	if err != nil {
		return // written by another version of Headgate; the rest of the row is still shown
	}
	row.Limit, row.Level, row.Capacity = f.rules.Limits[at].Name, b.Level, b.Max
}

// limitOf returns the limit that holds a tenant, or the tightest of its own; -1 for none.
func (f *forecast) limitOf(tenant string, held *Hold) int {
	tightest, least := -1, math.Inf(1)
	for i, limit := range f.rules.Limits {
		spec := f.limits.Spec(i, tenant)
		if spec.Algorithm == "cc" {
			continue
		}
		if held != nil && held.Limit == limit.Name {
			return i
		}
		if rate := perSecond(spec, limit); slices.Contains(limit.Per, "tenant") && !limit.PerGroup() && rate < least {
			tightest, least = i, rate
		}
	}
	return tightest
}

// perSecond returns how many permits a limit gives per second on average.
func perSecond(spec limitlua.Spec, limit limits.Limit) float64 {
	switch spec.Algorithm {
	case "fw", "sc", "sl":
		window := float64(spec.Window) / 1e6
		if spec.Window == 0 {
			window = limits.Ramp{From: limit.Rate}.Period().Seconds()
		}
		return float64(spec.Burst) / window
	}
	return float64(spec.Flow) / float64(spec.Permit) * 1e6
}

// scanLanes returns the lanes of an escaped tenant, in a queue that has no more lanes
// than a forecast reads.
func (f *forecast) scanLanes(ctx context.Context, client redis.UniversalClient, tenant string) (lanes []string, err error) {
	found := client.SScan(ctx, asynqwire.Key(f.queue, "groups"), 0, tenant+";*", 1000).Iterator()
	for found.Next(ctx) {
		lanes = append(lanes, found.Val())
	}
	return lanes, found.Err()
}

// focus adds the lanes of tenants to those that were read, and reads their current
// backlogs.
func (f *forecast) focus(ctx context.Context, client redis.UniversalClient, known *tenantList, tenants ...string) error {
	pipe := client.Pipeline()
	check := f.check(ctx, pipe, client)
	var waiting *redis.SliceCmd
	if len(tenants) > 0 {
		waiting = pipe.HMGet(ctx, store.TenantsKey(f.queue), tenants...)
	}
	if err := store.Execute(ctx, pipe); err != nil {
		return err
	}
	if err := check(); err != nil || waiting == nil {
		return err
	}
	var names []string
	seen := make(map[string]bool, len(f.lanes))
	for i := range f.lanes {
		seen[f.lanes[i].Tenant] = true
	}
	for i, tenant := range tenants {
		lanes := known.lanesOf(tenant)
		if len(lanes) == 0 && !seen[tenant] && known == nil && store.ReadCounts(store.Texts(waiting.Val())[i]).Waiting > 0 {
			var err error // its jobs came after all lanes were read
			if lanes, err = f.scanLanes(ctx, client, tenant); err != nil {
				return err
			}
		}
		lanes = lanes[:min(len(lanes), maxLanesOfOne)]
		if len(lanes) == 0 && !seen[tenant] {
			lanes = []string{tenant} // the tenant's own lane, which has its buckets
		}
		names = append(names, lanes...)
	}
	if err := f.with(ctx, client, names...); err != nil {
		return err
	}
	f.backlog = waitingOf(tenants, waiting)
	return nil
}
