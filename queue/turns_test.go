package queue

import (
	"fmt"
	"slices"
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

// TestTurnEndsWhereTheNextOneIsDue: a lane gets the slots of a shared limit until another lane is due, also slots that
// are far ahead.
func TestTurnEndsWhereTheNextOneIsDue(t *testing.T) {
	t.Parallel()
	shared := limits.Limit{Name: "account", Algorithm: throttle.LeakyBucket, Rate: throttle.Rate{Count: 1, Period: 10 * time.Second}}
	r := startRig(t, -1, limitsOf(shared), nil)
	r.enqueue(t, "a", 5)
	r.enqueue(t, "b", 1)
	now, err := store.Time(t.Context(), r.server.Client(), store.Key(r.queue, "waiting"))
	if err != nil {
		t.Fatal(err)
	}
	due := now.Add(25 * time.Second)
	r.server.Client().ZAdd(t.Context(), store.Key(r.queue, "waiting"), redis.Z{Score: float64(due.UnixMicro()), Member: r.lane("b")})
	reply, err := store.DispatchScript.Run(t.Context(), r.server.Client(), store.ScriptKeys(r.queue), r.queue, 100, 100, time.Minute.Microseconds(), pickup.Microseconds(), "", ",call,", time.Minute.Microseconds(), "w", 1, 0, maxAlone, leadLasts.Milliseconds(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, job := range reply.([]any)[10].([]any) {
		order = append(order, r.field(t, fmt.Sprint(job.([]any)[0]), "group"))
	}
	want := []string{r.lane("a"), r.lane("a"), r.lane("a"), r.lane("b"), r.lane("a"), r.lane("a")}
	if !slices.Equal(order, want) {
		t.Errorf("slots in the order %q, want %q", order, want)
	}
}

// TestExpiredJobThatComesBack: a job whose deadline has passed is handed over to be put away, comes back because the worker
// died, and is handed over again although its tenant is paused.
func TestExpiredJobThatComesBack(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	client, deadlines := r.server.Client(), store.Key(r.queue, "deadlines")
	if _, err := operate.PauseJobs(t.Context(), client, r.queue, inspect.Scope{Tenant: "a"}, time.Time{}, operate.Operator{Actor: "ann", Reason: "a test"}); err != nil {
		t.Fatal(err)
	}
	id := r.add(t, func(job *Job) { job.Deadline = time.Now().Add(time.Hour) })
	_, handed := r.handing()
	for try := 1; try <= 2; try++ {
		passed := client.ZAddXX(t.Context(), deadlines, redis.Z{Score: 1, Member: id}).Err()
		if got := handed(t, 10); passed != nil || len(got) != try || got[try-1] != id {
			t.Fatalf("time %d: all that was handed over is %q, %v", try, got, passed)
		}
		client.ZAdd(t.Context(), asynqwire.Key(r.queue, "lease"), redis.Z{Score: 10, Member: id})
		r.recover(t, id, "10", false)
	}
}

// TestDeadlineOfAJobThatIsHeld: a job whose deadline passes while a worker has it is looked at again later, and a
// deadline without a job goes.
func TestDeadlineOfAJobThatIsHeld(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	client, deadlines := r.server.Client(), store.Key(r.queue, "deadlines")
	id := r.add(t, nil)
	r.hold(t, id, "w:1")
	client.ZAdd(t.Context(), deadlines, redis.Z{Score: 1, Member: id}, redis.Z{Score: 1, Member: "ghost"})
	_, handed := r.handing()
	if got := handed(t, 10); len(got) > 0 {
		t.Errorf("%q were handed over", got)
	}
	left := client.ZRangeWithScores(t.Context(), deadlines, 0, -1).Val()
	now := time.Now().UnixMicro()
	if len(left) != 1 || left[0].Member != id || left[0].Score < float64(now+1e6) || left[0].Score > float64(now+6e6) {
		t.Errorf("at %d the deadlines are %v; want that of %s in some seconds", now, left, id)
	}
}
