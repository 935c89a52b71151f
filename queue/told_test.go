package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// TestDamageIsTold: damaged data that a script finds is reported as a fault with the reason.
func TestDamageIsTold(t *testing.T) {
	t.Parallel()
	round := func(t *testing.T, r *rig, _ string) {
		if _, err := r.dispatcher().round(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
	}
	set := func(field, value string) func(t *testing.T, r *rig, id string) {
		return func(t *testing.T, r *rig, id string) {
			r.server.Client().HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), field, value)
		}
	}
	for name, test := range map[string]struct {
		damage, run func(t *testing.T, r *rig, id string)
		want        string
	}{
		"a cost that is no number":     {set("hg_cost", "x9"), round, `"x9" is no cost`},
		"less than no crashes":         {set("hg_crashes", "-1"), round, "its attempts"},
		"a deadline that is no number": {set("hg_deadline", "soon"), round, "its deadline is no number"},
		"a list of others' jobs": {
			func(t *testing.T, r *rig, _ string) {
				r.server.Client().Set(t.Context(), store.Key(r.queue, "handed:w"), `[1, 2]`, time.Minute)
			},
			func(t *testing.T, r *rig, _ string) {
				d := r.dispatcher()
				d.unheard = unheard{1, 1}
				if _, err := d.round(t.Context(), 100); err != nil {
					t.Fatal(err)
				}
			}, "it is no list of a number and ids",
		},
		"a permit of no limit": {
			func(t *testing.T, r *rig, id string) {
				r.hold(t, id, "w:1")
				set("hg_permits", "another")(t, r, id)
			},
			func(t *testing.T, r *rig, id string) {
				if !r.settles(t, settleQuestion{id: id, outcome: "done", to: "gone"}).mine {
					t.Error("the job could not end")
				}
			}, "holds a permit of no limit",
		},
		"a counter that is none": {
			func(t *testing.T, r *rig, id string) {
				r.hold(t, id, "w:1")
				r.server.Client().Set(t.Context(), asynqwire.Key(r.queue, "processed"), "many", 0)
			},
			func(t *testing.T, r *rig, id string) {
				if !r.settles(t, settleQuestion{id: id, outcome: "done", to: "gone"}).mine {
					t.Error("the job could not end")
				}
			}, "not an integer",
		},
		"archived, and in another state": {
			func(t *testing.T, r *rig, id string) {
				r.server.Client().ZAdd(t.Context(), asynqwire.Key(r.queue, "archived"), redis.Z{Score: 1, Member: id})
			},
			func(t *testing.T, r *rig, _ string) {
				if err := r.chores().MoveArchived(t.Context()); err != nil {
					t.Fatal(err)
				}
			}, "it is among the archived, and its state is aggregating",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, -1, limitsOf(perTenant(10)), nil)
			id := r.add(t, nil)
			test.damage(t, r, id)
			test.run(t, r, id)
			faults, err := inspect.Faults(t.Context(), r.server.Client(), r.queue)
			if err != nil || len(faults) != 1 || !strings.Contains(faults[0].Reason, test.want) {
				t.Errorf("faults %+v, %v; want one that says %q", faults, err, test.want)
			}
		})
	}
}

// TestPermitOfANewLimit: a job that is held while a new concurrency limit comes into force
// takes a permit of the limit with its next slot.
func TestPermitOfANewLimit(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(perTenant(10)), nil)
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	calls := limits.Limit{Name: "calls", Algorithm: throttle.Concurrency, Concurrency: 1}
	if err := operate.Publish(t.Context(), r.server.Client(), limits.Set{Queues: map[string]limits.Queue{r.queue: {Limits: []limits.Limit{calls}}}}); err != nil {
		t.Fatal(err)
	}
	if answer := r.slotOf(t, id); answer != "go" {
		t.Fatalf("the answer is %q", answer)
	}
	permits := r.field(t, id, "hg_permits")
	if n := r.server.Client().ZCard(t.Context(), permits).Val(); n != 1 {
		t.Errorf("%d permits are taken at %q; want one", n, permits)
	}
}
