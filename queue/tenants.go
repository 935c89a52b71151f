package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/throttle"
)

// TenantSort is what tenants are listed by.
type TenantSort string

// The orders; of tenants that are equal the one whose name comes first is first.
const (
	ByWaiting TenantSort = "waiting" // jobs that wait
	ByTenant  TenantSort = "tenant"  // the name
	ByDrains  TenantSort = "drains"  // when nothing waits any more; not known is last of all, and nothing waits first
	ByWeight  TenantSort = "weight"  // the part of shared limits
)

// TenantQuery says which tenants of a queue are listed.
type TenantQuery struct {
	Search    string     // part of the name, whatever its case; "": all
	Sort      TenantSort // "": by what waits
	Ascending bool       // the least first; otherwise the most

	Offset int // of the first one listed
	Limit  int // how many, at most 200; 0: 50
}

const (
	usualTenants = 50
	mostTenants  = 200
	mostSearch   = 3 * mostTenant
)

func (q *TenantQuery) check() error {
	q.Sort, q.Limit = cmp.Or(q.Sort, ByWaiting), cmp.Or(q.Limit, usualTenants)
	switch {
	case !slices.Contains([]TenantSort{ByWaiting, ByTenant, ByDrains, ByWeight}, q.Sort):
		return &InvalidError{"sort", quote(string(q.Sort)) + " is none of waiting, tenant, drains, weight"}
	case q.Offset < 0:
		return &InvalidError{"offset", fmt.Sprintf("%d is negative", q.Offset)}
	case q.Limit < 0 || q.Limit > mostTenants:
		return &InvalidError{"limit", fmt.Sprintf("%d is not within 1 to %d", q.Limit, mostTenants)}
	case len(q.Search) > mostSearch:
		return &InvalidError{"search", fmt.Sprintf("%d bytes are more than %d", len(q.Search), mostSearch)}
	}
	return nil
}

// TenantPage is a part of a queue's tenants.
type TenantPage struct {
	Now     time.Time
	Total   int64 // that match
	Tenants []TenantRow
}

// TenantRow is a tenant in one queue.
type TenantRow struct {
	Outlook

	Done   int64     // calls that succeeded, ever
	Weight float64   // its part of shared limits beside others' weights
	Next   time.Time // when its own limits next admit a job; zero: none waits

	// Limit is the one that holds it, or where none does the tightest of its own; ""
	// for none. Level is how many permits its bucket has now: negative where they
	// were given ahead. Capacity is what it holds when full.
	Limit           string
	Level, Capacity float64

	Pauses     []Pause // that hold all its jobs: those of the whole queue, and its own
	Overridden bool    // an operator changed a limit for it
}

// ListTenants lists the tenants of which a queue knows anything: something of them
// waits or was done, limits differ for them, or they are paused. Their names and
// order are read in pieces and kept, and refreshed in a fiftieth of the time, so
// that the order of 100,000 tenants may be half a minute old; the rows themselves
// are of now. Errors: [InvalidError].
func (in *Inspector) ListTenants(ctx context.Context, queue string, q TenantQuery) (TenantPage, error) {
	if err := q.check(); err != nil {
		return TenantPage{}, err
	}
	if err := checkQueue(ctx, in.redis, queue); err != nil {
		return TenantPage{}, err
	}
	var page TenantPage
	known, err := in.watch(queue).tenants(ctx, in.redis, queue)
	if err == nil {
		err = in.ask(ctx, queue, func(f *forecast) (err error) {
			page, err = f.tenantPage(ctx, in.redis, known, q)
			return err
		})
	}
	if err != nil {
		return TenantPage{}, fmt.Errorf("tenants of queue %q: %w", queue, err)
	}
	return page, nil
}

func (f *forecast) tenantPage(ctx context.Context, client redis.UniversalClient, known *tenantList, q TenantQuery) (TenantPage, error) {
	order, err := known.order(q, f)
	if err != nil {
		return TenantPage{}, err
	}
	page := TenantPage{Total: int64(len(order))}
	order = order[min(q.Offset, len(order)):]
	order = order[:min(q.Limit, len(order))]
	names := make([]string, len(order))
	for i, entry := range order {
		names[i] = entry.escaped
	}
	page.Tenants, err = f.tenantRows(ctx, client, known, names)
	page.Now = f.asked
	return page, err
}

// tenantRows reads some tenants as they are now.
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
		mine, wanted := lanes[l.tenant]
		if wanted && l.jobs > 0 && len(mine) < mostLanesOfOne {
			lanes[l.tenant] = append(mine, l.name)
		}
		if known := widest[l.tenant]; wanted && (known == nil || l.jobs > known.jobs) {
			widest[l.tenant] = l
		}
	}
	pipe := client.Pipeline()
	done := pipe.HMGet(ctx, key(f.queue, "done"), names...)
	due := map[string]*redis.FloatSliceCmd{}
	for tenant, names := range lanes {
		if len(names) == 0 {
			continue
		}
		due[tenant] = pipe.ZMScore(ctx, key(f.queue, "waiting"), names...)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	dones := texts(done.Val())
	outlooks := f.outlooks(run.members, names...)
	pauses := map[string][]Pause{}
	var common []Pause
	for _, pause := range f.pausesInForce() {
		switch {
		case pause.Kind != "":
		case pause.Tenant == "":
			common = append(common, pause)
		default:
			pauses[pause.Tenant] = append(pauses[pause.Tenant], pause)
		}
	}
	rows := make([]TenantRow, len(names))
	for i, name := range names {
		row := TenantRow{Outlook: outlooks[name], Weight: f.limits.weight(name)}
		row.Done, _ = strconv.ParseInt(dones[i], 10, 64)
		row.Pauses = slices.Concat(common, pauses[row.Tenant])
		for limit := range f.limits.overrides[name] {
			_, in := f.limits.override(limit, name)
			row.Overridden = row.Overridden || in
		}
		if row.Waiting > 0 {
			row.Next = f.nextOf(due[name])
		}
		if l := widest[name]; l != nil {
			f.fillLevel(&row, l)
		}
		rows[i] = row
	}
	return rows, nil
}

// nextOf is when the first of some lanes is due. One that is ready, and stands in no
// order of time, waits for shared limits alone and may go as soon as they let it.
func (f *forecast) nextOf(due *redis.FloatSliceCmd) time.Time {
	if due == nil {
		return f.asked
	}
	next := math.Inf(1)
	for _, micros := range due.Val() {
		next = min(next, micros)
	}
	if len(due.Val()) == 0 || int64(next) < f.asked.UnixMicro() {
		return f.asked
	}
	return time.UnixMicro(int64(next))
}

// fillLevel says what the bucket of a lane holds of the limit that matters most.
func (f *forecast) fillLevel(row *TenantRow, l *lane) {
	at := f.limitOf(l.tenant, row.HeldBy)
	if at < 0 {
		return
	}
	b, _, err := f.bucket(at, l, f.limits.spec(at, l.tenant))
	if err != nil {
		return // of another version of Headgate, and no reason to show nothing
	}
	row.Limit, row.Level, row.Capacity = f.rules.Limits[at].Name, b.level, b.most
}

// limitOf is the limit that holds a tenant, or the tightest of its own; -1: none.
func (f *forecast) limitOf(tenant string, held *Hold) int {
	tightest, least := -1, math.Inf(1)
	for i, limit := range f.rules.Limits {
		spec := f.limits.spec(i, tenant)
		if spec.Algorithm == "cc" {
			continue
		}
		if held != nil && held.Limit == limit.Name {
			return i
		}
		if rate := perSecond(spec, limit); slices.Contains(limit.Per, "tenant") && rate < least {
			tightest, least = i, rate
		}
	}
	return tightest
}

// perSecond is how many permits a limit gives on average.
func perSecond(spec throttle.Spec, limit Limit) float64 {
	switch spec.Algorithm {
	case "fw", "sc", "sl":
		window := float64(spec.Window) / 1e6
		if spec.Window == 0 {
			window = limit.Rate.Period.Seconds() + float64(limit.Rate.Months)*month.Seconds()
		}
		return float64(spec.Burst) / window
	}
	return float64(spec.Flow) / float64(spec.Permit) * 1e6
}

// month is the mean of months.
const month = 730*time.Hour + 29*time.Minute

// tenantEntry is a tenant as it is found in the list of all.
type tenantEntry struct {
	escaped, name string
	folded        string // the name as it is searched in
	waiting       int64
	weight        float64
}

// tenantList is all tenants of which a queue knows.
type tenantList struct {
	entries map[string]*tenantEntry // by escaped name
	lanes   map[string][]string     // of tenants, where their names do not say them

	mu     sync.Mutex // of what follows
	queue  []string   // all lanes with something waiting, by tenant and name
	sorted map[TenantQuery][]*tenantEntry
	drains *modelRun // by which was sorted
}

// order lists who matches, in the order asked for.
func (t *tenantList) order(q TenantQuery, f *forecast) ([]*tenantEntry, error) {
	by := TenantQuery{Sort: q.Sort, Ascending: q.Ascending}
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.Sort == ByDrains && t.drains != f.run {
		maps.DeleteFunc(t.sorted, func(by TenantQuery, _ []*tenantEntry) bool { return by.Sort == ByDrains })
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
	if q.Search == "" {
		return all, nil
	}
	wanted := strings.ToLower(q.Search)
	var found []*tenantEntry
	for _, entry := range all {
		if strings.Contains(entry.folded, wanted) {
			found = append(found, entry)
		}
	}
	return found, nil
}

func (t *tenantList) sort(by TenantQuery, f *forecast) ([]*tenantEntry, error) {
	all := slices.Collect(maps.Values(t.entries))
	value := map[TenantSort]func(*tenantEntry) float64{
		ByWaiting: func(e *tenantEntry) float64 { return float64(e.waiting) },
		ByWeight:  func(e *tenantEntry) float64 { return e.weight },
		ByTenant:  func(*tenantEntry) float64 { return 0 },
	}[by.Sort]
	if by.Sort == ByDrains {
		ends, err := f.drains(all)
		if err != nil {
			return nil, err
		}
		value = func(e *tenantEntry) float64 { return ends[e] }
	}
	sign := -1
	if by.Ascending {
		sign = 1
	}
	names := 1
	if by.Sort == ByTenant {
		names = sign
	}
	slices.SortFunc(all, func(a, b *tenantEntry) int {
		return cmp.Or(sign*cmp.Compare(value(a), value(b)), names*strings.Compare(a.name, b.name))
	})
	return all, nil
}

// drains is when tenants drain, in seconds: as the model says of those whose lanes
// were drawn; the others do as those that have as much to send for their weight, but
// not before their own limits let them. -1: nothing waits.
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
			outlooks[l.tenant] = max(outlooks[l.tenant], one.at)
			likes = append(likes, drawn{float64(l.jobs) / f.limits.weight(l.tenant), one.at})
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
				spec := f.limits.spec(i, e.escaped)
				if slices.Contains(limit.Per, "tenant") && spec.Algorithm != "cc" {
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

// focus makes sure that the lanes of tenants are among those looked at, and reads
// what waits of them now.
func (f *forecast) focus(ctx context.Context, client redis.UniversalClient, known *tenantList, tenants ...string) error {
	pipe := client.Pipeline()
	check := f.check(ctx, pipe)
	var waiting *redis.SliceCmd
	if len(tenants) > 0 {
		waiting = pipe.HMGet(ctx, key(f.queue, "backlog"), tenants...)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	if err := check(); err != nil || waiting == nil {
		return err
	}
	var names []string
	seen := make(map[string]bool, len(f.lanes))
	for i := range f.lanes {
		seen[f.lanes[i].tenant] = true
	}
	for _, tenant := range tenants {
		lanes := known.lanesOf(tenant)
		lanes = lanes[:min(len(lanes), mostLanesOfOne)]
		if len(lanes) == 0 && !seen[tenant] {
			lanes = []string{tenant} // of the tenant itself, which has its buckets
		}
		names = append(names, lanes...)
	}
	if err := f.with(ctx, client, names...); err != nil {
		return err
	}
	f.backlog = maps.Clone(f.backlog)
	for i, text := range texts(waiting.Val()) {
		f.backlog[tenants[i]] = text
	}
	return nil
}

const (
	mostLanesOfOne  = 20   // of one tenant, that are looked at by name
	mostLanesListed = 1000 // of one tenant, whose jobs are listed
)

func (t *tenantList) lanesOf(tenant string) []string {
	if t == nil {
		return nil
	}
	return t.lanes[tenant]
}

// lanesFrom names all lanes with something waiting from one on, by tenant and name.
func (t *tenantList) lanesFrom(from string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	compare := func(a, b string) int {
		tenantA, _, _ := strings.Cut(a, ";")
		tenantB, _, _ := strings.Cut(b, ";")
		return cmp.Or(strings.Compare(tenantA, tenantB), strings.Compare(a, b))
	}
	if t.queue == nil {
		for tenant, e := range t.entries {
			if e.waiting > 0 {
				t.queue = append(append(t.queue, tenant), t.lanes[tenant]...)
			}
		}
		slices.SortFunc(t.queue, compare)
	}
	at, _ := slices.BinarySearchFunc(t.queue, from, compare)
	return t.queue[at:]
}

// tenantScan reads the list of tenants in pieces.
type tenantScan struct {
	turn   chan struct{}
	known  *tenantList
	next   *tenantList // being read
	stage  int
	cursor uint64
	last   time.Time     // when it was last read on
	credit time.Duration // for which it may be read on
	shared map[string]storedTenant
	lanes  bool
}

// tenantStages are the hashes that know of tenants.
var tenantStages = []string{"backlog", "done", "limits", "overrides", "pauses", "groups"}

// tenants is the list of tenants, read on as far as its share of the time goes.
func (w *watched) tenants(ctx context.Context, client redis.UniversalClient, queue string) (*tenantList, error) {
	s := &w.scan
	done, err := take(ctx, s.turn)
	if err != nil {
		return nil, err
	}
	defer done()
	began := time.Now()
	idle := began.Sub(s.last)
	if s.credit += idle / readingPart; idle > longestAge {
		s.next = nil // what was read of the next one is too old
	}
	if s.known == nil {
		s.credit = math.MaxInt64
	}
	for s.credit > 0 {
		step := time.Now()
		ended, err := s.step(ctx, client, queue)
		if err != nil {
			s.next = nil
			return nil, err
		}
		s.credit -= time.Since(step)
		if ended {
			s.credit = min(s.credit, 0)
		}
	}
	s.last = time.Now()
	return s.known, nil
}

// step reads one piece, and says whether it was the last.
func (s *tenantScan) step(ctx context.Context, client redis.UniversalClient, queue string) (ended bool, err error) {
	if s.next == nil {
		s.next = &tenantList{entries: map[string]*tenantEntry{}, lanes: map[string][]string{}, sorted: map[TenantQuery][]*tenantEntry{}}
		s.stage, s.cursor, s.shared = 0, 0, map[string]storedTenant{}
	}
	var fields []string
	switch name := tenantStages[s.stage]; name {
	case "groups":
		// Only where a lane has more in its name than the tenant.
		if s.lanes {
			fields, s.cursor, err = client.SScan(ctx, asynqKey(queue, "groups"), s.cursor, "", mostKeys).Result()
			for _, lane := range fields {
				tenant, _, split := strings.Cut(lane, ";")
				if names := s.next.lanes[tenant]; split && len(names) < mostLanesListed {
					s.next.lanes[tenant] = append(names, lane)
				}
			}
		}
	default:
		fields, s.cursor, err = client.HScan(ctx, key(queue, name), s.cursor, "", mostKeys).Result()
		for i := 0; i+1 < len(fields) && err == nil; i += 2 {
			err = s.note(name, fields[i], fields[i+1])
		}
	}
	if err != nil || s.cursor != 0 {
		return false, err
	}
	if s.stage++; s.stage < len(tenantStages) {
		return false, nil
	}
	s.known, s.next = s.next, nil
	return true, nil
}

// note adds what one hash says of one tenant.
func (s *tenantScan) note(hash, field, text string) error {
	tenant := field
	switch hash {
	case "limits":
		own, is := strings.CutPrefix(field, "t:")
		if !is {
			var stored storedQueue
			err := json.Unmarshal([]byte(text), &stored)
			s.lanes = len(stored.Attributes) > 0
			return err
		}
		tenant = own
	case "pauses":
		if strings.HasPrefix(field, "k:") {
			return nil
		}
	}
	if tenant == wholeQueue {
		return nil
	}
	e := s.next.entries[tenant]
	if e == nil {
		name := unescape(tenant)
		e = &tenantEntry{escaped: tenant, name: name, folded: strings.ToLower(name), weight: 1}
		s.next.entries[tenant] = e
	}
	switch hash {
	case "backlog":
		e.waiting, _ = strconv.ParseInt(text, 10, 64)
	case "limits":
		own, known := s.shared[text]
		if !known {
			if err := json.Unmarshal([]byte(text), &own); err != nil {
				return fmt.Errorf("limits of tenant %s: %w", quote(tenant), err)
			}
			s.shared[text] = own
		}
		e.weight = cmp.Or(own.Weight, 1)
	}
	return nil
}
