package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
)

// tenantEntry is a tenant in the list of all.
type tenantEntry struct {
	escaped, name string
	folded        string // the name in lower case, for searches
	waiting       int64
	weight        float64
	own           bool  // limits were published for it alone
	overridden    int64 // when the last of its overrides ends, Unix µs; 0: it has none
}

// tenantList is all tenants that a queue knows.
type tenantList struct {
	entries map[string]*tenantEntry // by escaped name
	lanes   map[string][]string     // by tenant, if lanes have more in their names than the tenant

	mu     sync.Mutex // guards the following fields
	queue  []string   // all lanes with waiting jobs, by tenant and name
	sorted map[TenantQuery][]ranked
	drains *modelRun // by which ByDrains was sorted
}

// ranked is a tenant with the value by which it is sorted.
type ranked struct {
	*tenantEntry
	value float64
}

// compare orders tenants as a query wants: by value, and those that are equal by name.
func (q TenantQuery) compare(a, b ranked) int {
	sign, names := -1, 1
	if q.Ascending {
		sign = 1
	}
	if q.Sort == ByTenant {
		names = sign
	}
	return cmp.Or(sign*cmp.Compare(a.value, b.value), names*strings.Compare(a.name, b.name))
}

// order returns the tenants that match, in the order asked for.
func (t *tenantList) order(q TenantQuery, f *forecast) ([]ranked, error) {
	by := TenantQuery{Sort: q.Sort, Ascending: q.Ascending}
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.Sort == ByDrains && t.drains != f.run {
		maps.DeleteFunc(t.sorted, func(by TenantQuery, _ []ranked) bool { return by.Sort == ByDrains })
		t.drains = f.run
	}
	all, known := t.sorted[by]
	if !known {
		var err error
		if all, err = t.sort(by, f); err != nil {
			return nil, err
		}
		t.sorted[by] = all
	}
	if q.Search == "" && q.Only == "" {
		return all, nil
	}
	wanted := strings.ToLower(q.Search)
	is := f.filter(q.Only)
	var found []ranked
	for _, entry := range all {
		if strings.Contains(entry.folded, wanted) && is(entry.tenantEntry) {
			found = append(found, entry)
		}
	}
	return found, nil
}

// filter returns what selects the tenants in a list.
func (f *forecast) filter(only TenantFilter) func(*tenantEntry) bool {
	switch only {
	case OnlyWaiting:
		return func(e *tenantEntry) bool { return e.waiting > 0 }
	case OnlyOverridden:
		return func(e *tenantEntry) bool { return e.overridden > f.asked.UnixMicro() }
	case OnlyOwn:
		return func(e *tenantEntry) bool { return e.own }
	case OnlyPaused:
		paused := map[string]bool{}
		for _, p := range pausesInForce(f.pauses, f.asked) {
			if p.Kind == "" && p.Endpoint == "" {
				paused[p.Tenant] = true
			}
		}
		return func(e *tenantEntry) bool { return paused[e.name] }
	}
	return func(*tenantEntry) bool { return true }
}

func (t *tenantList) sort(by TenantQuery, f *forecast) ([]ranked, error) {
	entries := slices.Collect(maps.Values(t.entries))
	value := map[TenantSort]func(*tenantEntry) float64{
		ByWaiting: func(e *tenantEntry) float64 { return float64(e.waiting) },
		ByWeight:  func(e *tenantEntry) float64 { return e.weight },
		ByTenant:  func(*tenantEntry) float64 { return 0 },
	}[by.Sort]
	if by.Sort == ByDrains {
		ends, err := f.drains(entries)
		if err != nil {
			return nil, err
		}
		value = func(e *tenantEntry) float64 { return ends[e] }
	}
	all := make([]ranked, len(entries))
	for i, e := range entries {
		all[i] = ranked{e, value(e)}
	}
	slices.SortFunc(all, by.compare)
	return all, nil
}

// drains returns when tenants drain, in seconds. For tenants whose lanes were drawn, the
// model says it. The others are like those that have as many jobs for their weight, but
// not before their own limits admit them. It is -1 for tenants without waiting jobs.
func (f *forecast) drains(all []*tenantEntry) (map[*tenantEntry]float64, error) {
	run, err := f.all()
	if err != nil {
		return nil, err
	}
	outlooks := map[string]float64{}
	type drawn struct{ share, at float64 }
	var likes []drawn
	for i, one := range run.members {
		if l := &f.lanes[i]; l.jobs > 0 {
			outlooks[l.Tenant] = max(outlooks[l.Tenant], one.At)
			likes = append(likes, drawn{float64(l.jobs) / f.limits.Weight(l.Tenant), one.At})
		}
	}
	slices.SortFunc(likes, func(a, b drawn) int { return cmp.Compare(a.share, b.share) })
	ends := make(map[*tenantEntry]float64, len(all))
	for _, e := range all {
		at, known := outlooks[e.escaped]
		switch {
		case known:
			ends[e] = at
		case e.waiting <= 0:
			ends[e] = -1
		default:
			for i, limit := range f.rules.Limits {
				spec := f.limits.Spec(i, e.escaped)
				if slices.Contains(limit.Per, "tenant") && !limit.PerGroup() && spec.Algorithm != "cc" {
					at = max(at, (float64(e.waiting)*max(permits(limit, spec, f.cost), 0)-float64(spec.Burst))/perSecond(spec, limit))
				}
			}
			if len(likes) > 0 {
				i, _ := slices.BinarySearchFunc(likes, float64(e.waiting)/e.weight, func(d drawn, share float64) int { return cmp.Compare(d.share, share) })
				at = max(at, likes[min(i, len(likes)-1)].at)
			}
			ends[e] = at
		}
	}
	return ends, nil
}

const (
	maxLanesOfOne  = 20   // lanes of one tenant that are read by name
	maxLanesListed = 1000 // lanes of one tenant whose jobs are listed
)

func (t *tenantList) lanesOf(tenant string) []string {
	if t == nil {
		return nil
	}
	return t.lanes[tenant]
}

// lanesFrom returns all lanes with waiting jobs from one on, by tenant and name.
func (t *tenantList) lanesFrom(from string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queue == nil {
		for tenant, e := range t.entries {
			if e.waiting > 0 {
				t.queue = append(append(t.queue, tenant), t.lanes[tenant]...)
			}
		}
		slices.SortFunc(t.queue, compareLanes)
	}
	at, _ := slices.BinarySearchFunc(t.queue, from, compareLanes)
	return t.queue[at:]
}

// compareLanes orders lanes by tenant and name.
func compareLanes(a, b string) int {
	tenantA, _, _ := strings.Cut(a, ";")
	tenantB, _, _ := strings.Cut(b, ";")
	return cmp.Or(strings.Compare(tenantA, tenantB), strings.Compare(a, b))
}

// tenantStages are the keys in which tenants are found.
var tenantStages = []string{"tenants", "limits", "overrides", "pauses", "groups"}

// tenantList returns the shared list of the tenants of a partition, or a new one if that is too old.
func (in *Inspector) tenantList(ctx context.Context, queue string) (*tenantList, error) {
	r := &in.watch(queue).tenants
	done, err := take(ctx, r.turn)
	if err != nil {
		return nil, err
	}
	defer done()
	list, _, err := r.get(ctx, r.last.late(), func(ctx context.Context, rest func(time.Duration)) (*tenantList, error) {
		l, err := in.layout(ctx, partition.QueueOf(queue))
		if err != nil {
			return nil, err
		}
		return readTenants(ctx, in.redis, l, queue, rest)
	})
	return list, err
}

// late returns for how long after its time a list is used while the next one is read,
// which takes half a minute for 100,000 tenants.
func (t *tenantList) late() time.Duration {
	if t == nil || len(t.entries) <= store.MaxKeys {
		return 0
	}
	return time.Minute
}

// readTenants reads the list of tenants in pieces. In the background it rests most of the
// time.
func readTenants(ctx context.Context, client redis.UniversalClient, l partition.Layout, queue string, rest func(time.Duration)) (*tenantList, error) {
	var states map[string]string
	if l.From != nil {
		var err error
		if states, err = store.ScanHash(ctx, client, store.MovesKey(queue)); err != nil {
			return nil, err
		}
	}
	scan := tenantScan{
		here: func(tenant string) bool {
			return l.Whole() || store.IsAt(l, queue, tenant, states[rediskey.Escape(tenant)])
		},
		list:   &tenantList{entries: map[string]*tenantEntry{}, lanes: map[string][]string{}, sorted: map[TenantQuery][]ranked{}},
		shared: map[string]effective.Tenant{},
		lanes:  len(effective.Attributes(limits.Queue{})) > 0, // as in a queue without limits
	}
	for _, stage := range tenantStages {
		for cursor, first := uint64(0), true; first || cursor != 0; first = false {
			began := time.Now()
			var err error
			if cursor, err = scan.step(ctx, client, queue, stage, cursor); err != nil {
				return nil, err
			}
			rest(min(readingPart*time.Since(began), readingAge))
		}
	}
	return scan.list, nil
}

// tenantScan reads a list of tenants.
type tenantScan struct {
	list   *tenantList
	here   func(tenant string) bool // whether the partition has it: the limits are in all of them
	shared map[string]effective.Tenant
	lanes  bool
}

// step reads one piece, and returns where the next one begins; 0 if there is none.
func (s *tenantScan) step(ctx context.Context, client redis.UniversalClient, queue, stage string, cursor uint64) (next uint64, err error) {
	var fields []string
	if stage != "groups" {
		fields, next, err = client.HScan(ctx, store.Key(queue, stage), cursor, "", store.MaxKeys).Result()
		for i := 0; i+1 < len(fields) && err == nil; i += 2 {
			err = s.note(stage, fields[i], fields[i+1])
		}
		return next, err
	}
	// Only if lanes have more in their names than the tenant.
	if !s.lanes {
		return 0, nil
	}
	fields, next, err = client.SScan(ctx, asynqwire.Key(queue, stage), cursor, "", store.MaxKeys).Result()
	for _, lane := range fields {
		tenant, _, split := strings.Cut(lane, ";")
		if names := s.list.lanes[tenant]; split && len(names) < maxLanesListed {
			s.list.lanes[tenant] = append(names, lane)
		}
	}
	return next, err
}

// note adds what one hash contains about one tenant.
func (s *tenantScan) note(hash, field, text string) error {
	tenant := field
	switch hash {
	case "limits":
		if field == store.EpochField || field == store.PinsField || field == store.SumField {
			return nil
		}
		own, is := strings.CutPrefix(field, "t:")
		if !is {
			var stored effective.Queue
			err := json.Unmarshal([]byte(text), &stored)
			s.lanes = len(stored.Attributes) > 0
			return err
		}
		tenant = own
	case "pauses":
		if scope := readScope(field); scope != (Scope{Tenant: scope.Tenant}) {
			return nil
		}
	}
	if tenant == store.WholeQueue {
		return nil
	}
	e := s.list.entries[tenant]
	if e == nil {
		name := store.Unescape(tenant)
		if !s.here(name) {
			return nil
		}
		e = &tenantEntry{escaped: tenant, name: name, folded: strings.ToLower(name), weight: 1}
		s.list.entries[tenant] = e
	}
	switch hash {
	case "tenants":
		e.waiting = store.ReadCounts(text).Waiting
	case "limits":
		own, known := s.shared[text]
		if !known {
			if err := json.Unmarshal([]byte(text), &own); err != nil {
				return fmt.Errorf("limits of tenant %s: %w", check.Quote(tenant), err)
			}
			s.shared[text] = own
		}
		e.weight, e.own = cmp.Or(own.Weight, 1), true
	case "overrides":
		var all map[string]effective.Override
		_ = json.Unmarshal([]byte(text), &all) // of damaged ones a fault tells
		for _, o := range all {
			e.overridden = max(e.overridden, cmp.Or(o.Until, math.MaxInt64))
		}
	}
	return nil
}
