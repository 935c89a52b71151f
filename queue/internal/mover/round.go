package mover

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
)

const (
	// jobsInRound and tenantsInRound are how many are moved in one round: the tenants wait until it ends. Each
	// looks at all keys of the node, so there are not too many.
	jobsInRound    = 20_000
	tenantsInRound = 1_000
	maxRounds      = 64

	// idleFor is how long a round waits for the calls of its tenants, at first. Those whose calls take longer
	// have their turn again later, and are waited for longer.
	idleFor = 2 * time.Second

	// maxPatience only keeps a doubled time from overflowing: a wait ends with the last call, of whichever worker.
	maxPatience = 24 * time.Hour

	idleLook = 20 * time.Millisecond
	atATime  = 200 // ids or names in one command
)

// empty moves all tenants of a partition that the new layout has elsewhere.
// byKeys: also those that have nothing there but keys.
func (m *Mover) empty(ctx context.Context, home string, byKeys bool) error {
	var busy []string // in the last pass; they do not share a round with others, who would stand still as long as they
	for patience := idleFor; ; patience, byKeys = min(2*patience, maxPatience), false {
		states, err := m.hash(ctx, store.MovesKey(home))
		if err != nil {
			return err
		}
		if err := m.resume(ctx, home, states); err != nil {
			return err
		}
		tenants, jobs, err := m.leaving(ctx, home, byKeys)
		if err != nil {
			return err
		}
		if len(tenants) == 0 {
			return nil
		}
		others := without(tenants, busy)
		again := without(tenants, others)
		busy = nil
		if len(others) > 0 {
			rounds := min(max(1, int(jobs/jobsInRound), len(others)/tenantsInRound), maxRounds, len(others))
			for round := range slices.Chunk(others, (len(others)+rounds-1)/rounds) {
				some, err := m.round(ctx, home, round, idleFor)
				if err != nil {
					return err
				}
				busy = append(busy, some...)
			}
		}
		if len(again) > 0 {
			some, err := m.round(ctx, home, again, patience)
			if err != nil {
				return err
			}
			busy = append(busy, some...)
		}
	}
}

// resumeAll ends the rounds that were interrupted, as far as their partitions answer. It returns an error if one does not.
func (m *Mover) resumeAll(ctx context.Context) (failed error) {
	for _, home := range m.Of.Names() {
		failed = cmp.Or(failed, m.away[home])
	}
	for _, home := range m.Of.From.Names() {
		if m.away[home] != nil {
			continue
		}
		states, err := m.hash(ctx, store.MovesKey(home))
		if err == nil {
			err = m.resume(ctx, home, states)
		}
		if err != nil {
			failed = cmp.Or(failed, fmt.Errorf("from %s: %w", home, err))
		}
	}
	return failed
}

// resume ends rounds of a partition that were interrupted.
func (m *Mover) resume(ctx context.Context, home string, states map[string]string) (failed error) {
	rounds := map[string][]string{}
	for tenant, state := range states {
		if token, left := strings.CutPrefix(state, store.MoveLeft); left {
			rounds[token] = append(rounds[token], tenant)
		}
	}
	for _, token := range slices.Sorted(maps.Keys(rounds)) {
		failed = cmp.Or(failed, m.carry(ctx, home, token, rounds[token]))
	}
	return failed
}

// releaseAll releases the tenants of all partitions that answer, while no other worker moves them.
func (m *Mover) releaseAll(ctx context.Context) (failed error) {
	if err := m.lead(ctx); err != nil {
		return err
	}
	for _, home := range m.Of.From.Names() {
		if m.away[home] != nil {
			continue
		}
		states, err := m.hash(ctx, store.MovesKey(home))
		if err == nil {
			maps.DeleteFunc(states, func(_, state string) bool { return state != store.MoveStop })
			err = m.release(ctx, home, slices.Collect(maps.Keys(states)))
		}
		failed = cmp.Or(failed, err)
	}
	return failed
}

// release lets tenants go on where they are that were stopped and have not left: so nothing of them has been moved.
func (m *Mover) release(ctx context.Context, home string, tenants []string) error {
	if len(tenants) == 0 {
		return nil
	}
	if err := m.keep(ctx); err != nil {
		return err
	}
	if _, err := m.set(ctx, home, store.MoveStop, "", tenants); err != nil {
		return err
	}
	return m.replan(ctx, home, tenants)
}

// destination returns the partition to which an escaped tenant moves from another one; "": it stays.
func (m *Mover) destination(home, tenant string) string {
	homes := m.Of.Homes(store.Unescape(tenant))
	if len(homes) == 1 || homes[0] != home {
		return ""
	}
	return homes[1]
}

// byDestination groups tenants by the partition to which they move.
func (m *Mover) byDestination(home string, tenants []string) map[string][]string {
	groups := map[string][]string{}
	for _, tenant := range tenants {
		groups[m.destination(home, tenant)] = append(groups[m.destination(home, tenant)], tenant)
	}
	return groups
}

// leaving returns the escaped tenants that have something in a partition and belong to another one, and how many
// jobs they have. byKeys: also those that have nothing but keys, for which it looks at all keys of the node.
func (m *Mover) leaving(ctx context.Context, home string, byKeys bool) (tenants []string, jobs int64, err error) {
	states, err := m.hash(ctx, store.MovesKey(home))
	if err != nil {
		return nil, 0, err
	}
	found := map[string]bool{}
	add := func(tenant string) {
		if m.destination(home, tenant) != "" && states[tenant] != store.MoveGone {
			found[tenant] = true
		}
	}
	for tenant, state := range states {
		if state == store.MoveStop {
			add(tenant)
		}
	}
	var counts, overrides, pauses map[string]string
	var lanes []string
	err = m.do(ctx, func(ctx context.Context) (err error) {
		if counts, err = store.ScanHash(ctx, m.Redis, store.TenantsKey(home)); err != nil {
			return err
		}
		if overrides, err = store.ScanHash(ctx, m.Redis, store.Key(home, "overrides")); err != nil {
			return err
		}
		if pauses, err = store.ScanHash(ctx, m.Redis, store.Key(home, "pauses")); err != nil {
			return err
		}
		lanes, err = m.Redis.SMembers(ctx, asynqwire.Key(home, "groups")).Result()
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	for tenant, text := range counts {
		if tenant == store.WholeQueue {
			continue
		}
		if add(tenant); found[tenant] {
			jobs += store.ReadCounts(text).Jobs
		}
	}
	for tenant := range overrides {
		add(tenant)
	}
	for scope := range pauses {
		if tenant := tenantOfScope(scope); tenant != "" {
			add(tenant)
		}
	}
	for _, lane := range lanes {
		add(store.ParseLane(lane).Tenant)
	}
	if byKeys {
		keys, err := m.keys(ctx, home)
		if err != nil {
			return nil, 0, err
		}
		for tenant := range keys {
			add(tenant)
		}
	}
	return slices.Sorted(maps.Keys(found)), jobs, nil
}

// round moves those tenants of a partition whose calls end within a time, and returns the others.
func (m *Mover) round(ctx context.Context, home string, tenants []string, patience time.Duration) (busy []string, err error) {
	if err := m.lead(ctx); err != nil {
		return nil, err
	}
	if err := m.ready(ctx, home, tenants); err != nil {
		return nil, err
	}
	if tenants, err = m.set(ctx, home, "", store.MoveStop, tenants); err != nil {
		return nil, err
	}
	store.AnnounceToAll(ctx, m.Redis, home)
	idle, err := m.idle(ctx, home, tenants, patience)
	if err != nil {
		return nil, err
	}
	busy = without(tenants, idle)
	if err := m.release(ctx, home, busy); err != nil {
		return nil, err
	}
	if len(idle) == 0 {
		return busy, nil
	}
	token := rand.Text()
	for to, some := range m.byDestination(home, idle) {
		if _, err := m.set(ctx, to, "*", store.MoveComes+token, some); err != nil {
			return nil, err
		}
	}
	gone, err := m.set(ctx, home, store.MoveStop, store.MoveLeft+token, idle)
	if err != nil {
		return nil, err
	}
	return busy, m.carry(ctx, home, token, gone)
}

// ready returns an error if one of the partitions of a round takes no writes, because it does not answer or needs a replica
// and none answers: the tenants would stand still for as long.
func (m *Mover) ready(ctx context.Context, home string, tenants []string) error {
	for _, one := range append(slices.Collect(maps.Keys(m.byDestination(home, tenants))), home) {
		if _, err := m.write(ctx, store.MoveScript, one, one, m.Of.Sum(), "", ""); err != nil { // for no tenant, so it changes nothing
			return err
		}
	}
	return nil
}

// set sets the state of those tenants that have a state, and returns who has the new one.
func (m *Mover) set(ctx context.Context, home, from, to string, tenants []string) (have []string, err error) {
	for some := range slices.Chunk(tenants, atATime) {
		args := []any{home, m.Of.Sum(), from, to}
		for _, tenant := range some {
			args = append(args, tenant)
		}
		reply, err := m.write(ctx, store.MoveScript, home, args...)
		if err != nil {
			return nil, err
		}
		for _, tenant := range reply.([]any) {
			have = append(have, tenant.(string))
		}
	}
	return have, nil
}

// idle waits until no worker has a job of the tenants, and returns those of which that is so in time.
func (m *Mover) idle(ctx context.Context, home string, tenants []string, patience time.Duration) ([]string, error) {
	for end := time.Now().Add(patience); ; {
		if err := m.keep(ctx); err != nil {
			return nil, err
		}
		busy := map[string]bool{}
		err := m.do(ctx, func(ctx context.Context) error {
			for _, list := range []string{"pending", "active"} { // jobs go from the one to the other
				ids, err := m.Redis.LRange(ctx, asynqwire.Key(home, list), 0, -1).Result()
				if err != nil {
					return err
				}
				if err := m.of(ctx, home, ids, func(_, tenant string) { busy[tenant] = true }); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		idle := slices.DeleteFunc(slices.Clone(tenants), func(tenant string) bool { return busy[tenant] })
		if len(idle) == len(tenants) || time.Now().After(end) {
			return idle, nil
		}
		if err := wait.For(ctx, idleLook); err != nil {
			return nil, err
		}
	}
}

// of calls each with the escaped tenant of every job of a list that is in Redis. One without a state is damaged: no worker
// has it, and it is not moved.
func (m *Mover) of(ctx context.Context, home string, ids []string, each func(id, tenant string)) error {
	for some := range slices.Chunk(ids, atATime) {
		tasks, err := m.fields(ctx, home, some, "state", "group")
		if err != nil {
			return err
		}
		var nameless []string // jobs of asynq's own client
		for i, id := range some {
			switch state, group := tasks[i][0], tasks[i][1]; {
			case state == "":
			case group != "":
				each(id, store.ParseLane(group).Tenant)
			default:
				nameless = append(nameless, id)
			}
		}
		if len(nameless) == 0 {
			continue
		}
		messages, err := m.fields(ctx, home, nameless, "msg")
		if err != nil {
			return err
		}
		for i, id := range nameless {
			if tenant, ok := tenantOf("", messages[i][0]); ok {
				each(id, tenant)
			}
		}
	}
	return nil
}

// fields reads fields of tasks; "" for those that do not have one.
func (m *Mover) fields(ctx context.Context, home string, ids []string, names ...string) ([][]string, error) {
	pipe := m.Redis.Pipeline()
	replies := make([]*redis.SliceCmd, len(ids))
	for i, id := range ids {
		replies[i] = pipe.HMGet(ctx, asynqwire.Key(home, "t:"+id), names...)
	}
	if _, err := pipe.Exec(ctx); err != nil && !wrongType(err) { // it is no task
		return nil, err
	}
	texts := make([][]string, len(ids))
	for i, reply := range replies {
		if err := reply.Err(); err != nil && !wrongType(err) {
			return nil, err
		}
		texts[i] = make([]string, len(names))
		copy(texts[i], store.Texts(reply.Val()))
	}
	return texts, nil
}

// wrongType reports that a key has data of another kind.
func wrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// without returns what is in all but not in some.
func without(all, some []string) []string {
	has := make(map[string]bool, len(some))
	for _, one := range some {
		has[one] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(one string) bool { return has[one] })
}

func (m *Mover) replan(ctx context.Context, home string, tenants []string) error {
	const few = 10 // for more tenants, one pass over all lanes is faster
	if len(tenants) > few {
		tenants = []string{""}
	}
	// No other worker replans these lanes, so this goes on even if the role is lost meanwhile.
	var lost error
	keep := func() { lost = cmp.Or(lost, m.keep(ctx)) }
	for _, tenant := range tenants {
		if err := effective.ReplanWith(ctx, m.Redis, home, store.Unescape(tenant), keep); err != nil {
			return err
		}
	}
	return lost
}

// arrived returns an error unless tenants have arrived in a partition before. A partition whose node failed over may have
// lost the limits, and then it answers as if they had: what they have must not be taken for moved.
func (m *Mover) arrived(ctx context.Context, home string, tenants []string) error {
	for some := range slices.Chunk(tenants, atATime) {
		var states []any
		err := m.do(ctx, func(ctx context.Context) (err error) {
			states, err = m.Redis.HMGet(ctx, store.MovesKey(home), some...).Result()
			return err
		})
		if err != nil {
			return err
		}
		if slices.ContainsFunc(store.Texts(states), func(state string) bool { return state != store.MoveHere }) {
			return fmt.Errorf("partition %s knows nothing of tenants that move there; if it has lost its limits, publish them again", home)
		}
	}
	return nil
}

// carry takes all that tenants have from a partition that they have left to those where they arrive.
func (m *Mover) carry(ctx context.Context, home, token string, tenants []string) error {
	c := &carrier{Mover: m, home: home, token: token, to: map[string]string{}}
	// The limits may have changed since. From now on the partition takes no more jobs of these tenants.
	if err := m.readDurability(ctx, home); err != nil {
		return err
	}
	arriving := map[string][]string{} // who is not among them has arrived before
	var leave []string
	var away error // of the partitions that do not answer: only the tenants that move there wait for them
	for to, some := range m.byDestination(home, tenants) {
		come, err := m.receive(ctx, to, token, some)
		if err != nil {
			away = cmp.Or(away, err)
			continue
		}
		arriving[to], leave = come, append(leave, some...)
		for _, tenant := range come {
			c.to[tenant] = to
		}
	}
	if len(leave) == 0 {
		return away
	}
	if err := c.jobs(ctx); err != nil {
		return err
	}
	if err := c.rest(ctx); err != nil {
		return err
	}
	for to, some := range arriving {
		if _, err := m.set(ctx, to, store.MoveComes+token, store.MoveHere, some); err != nil {
			return err
		}
	}
	if _, err := m.set(ctx, home, store.MoveLeft+token, store.MoveGone, leave); err != nil {
		return err
	}
	for to, some := range arriving {
		if err := m.replan(ctx, to, some); err != nil {
			return err
		}
	}
	return away
}

// receive makes a partition take the jobs of tenants that move there, and returns those that have not arrived yet.
func (m *Mover) receive(ctx context.Context, home, token string, tenants []string) (arriving []string, err error) {
	if err := m.away[home]; err != nil {
		return nil, err
	}
	arriving, err = m.set(ctx, home, "*", store.MoveComes+token, tenants)
	if err == nil {
		err = m.arrived(ctx, home, without(tenants, arriving))
	}
	return arriving, err
}
