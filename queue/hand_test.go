package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/boottime"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/workers"
)

// unheardRounds is a dispatcher whose network can lose replies, with the jobs that it was
// handed.
func (r *rig) unheardRounds(t *testing.T) (*dispatcher, *redistest.Wire, *[]handed) {
	t.Helper()
	if _, err := r.dispatcher().round(t.Context(), 0); err != nil { // Redis has the script by then
		t.Fatal(err)
	}
	wire, options := &redistest.Wire{}, r.server.Options()
	options.Dialer, options.MaxRetries = wire.Dial, -1
	client := redis.NewUniversalClient(options)
	t.Cleanup(func() { client.Close() })
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	var got []handed
	d := r.dispatcher()
	d.redis, d.hand = client, func(jobs []handed) { got = append(got, jobs...) }
	return d, wire, &got
}

// TestLostReplyOfDispatch: the jobs of a lost reply are handed over again, once, whatever
// requests and replies are lost after it, except jobs that another run has by then.
func TestLostReplyOfDispatch(t *testing.T) {
	const dispatch = "dispatch"
	hash := store.DispatchScript.Hash()
	lost := func(t *testing.T, d *dispatcher, wire *redistest.Wire) {
		t.Helper()
		wire.LoseReply(hash)
		if _, err := d.round(t.Context(), d.room()); err == nil || certain(err) {
			t.Fatalf("%v; want a lost reply", err)
		}
	}
	refused := func(t *testing.T, d *dispatcher, wire *redistest.Wire) {
		t.Helper()
		wire.Refuse(hash)
		defer wire.Refuse("")
		if _, err := d.round(t.Context(), d.room()); err == nil {
			t.Fatalf("it arrived; want it not to")
		}
	}
	for name, meanwhile := range map[string]func(t *testing.T, r *rig, d *dispatcher, wire *redistest.Wire){
		"heard the next time": func(*testing.T, *rig, *dispatcher, *redistest.Wire) {},
		"lost again":          func(t *testing.T, _ *rig, d *dispatcher, wire *redistest.Wire) { lost(t, d, wire) },
		"lost, then not sent": func(t *testing.T, _ *rig, d *dispatcher, wire *redistest.Wire) { refused(t, d, wire) },
		"more of it lost": func(t *testing.T, r *rig, d *dispatcher, wire *redistest.Wire) {
			r.enqueue(t, "b", 2)
			lost(t, d, wire)
			refused(t, d, wire)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRig(t, -1, limitsOf(), nil)
			r.enqueue(t, "a", 5)
			d, wire, got := r.unheardRounds(t)
			lost(t, d, wire)
			meanwhile(t, r, d, wire)
			until(t, dispatch, func() bool {
				_, err := d.round(t.Context(), d.room())
				return err == nil
			})
			var ids []string
			for _, job := range *got {
				ids = append(ids, job.id)
				if owner := r.field(t, job.id, "hg_owner"); owner != job.owner || job.answer != "go" && job.answer != "slot" {
					t.Errorf("job %s was handed to the run %s with %q, and its owner is %s", job.id, job.owner, job.answer, owner)
				}
			}
			active := r.server.Client().LRange(t.Context(), asynqwire.Key(r.queue, "active"), 0, -1).Val()
			slices.Sort(ids)
			slices.Sort(active)
			if len(ids) < 5 || !slices.Equal(ids, active) {
				t.Errorf("%d jobs were handed over, and %d are active", len(ids), len(active))
			}
			if n := d.capacity.taken.Load(); n != int64(len(ids)) {
				t.Errorf("%d places are taken by %d jobs", n, len(ids))
			}
		})
	}

	t.Run("sent, and arrived after the next one", func(t *testing.T) {
		r := startRig(t, -1, limitsOf(), nil)
		r.enqueue(t, "a", 5)
		d, wire, got := r.unheardRounds(t)
		lost(t, d, wire)
		var late redis.Cmder
		d.redis.AddHook(redistest.OnCommand(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if late == nil && cmd.Args()[1] == hash {
				late = cmd
				return io.EOF
			}
			return next(ctx, cmd)
		}))
		if _, err := d.round(t.Context(), d.room()); err == nil {
			t.Fatal("it arrived at once")
		}
		r.round(t, d)
		if err := r.server.Client().Do(t.Context(), late.Args()...).Err(); err != nil {
			t.Fatal(err)
		}
		for _, job := range *got {
			if owner := r.field(t, job.id, "hg_owner"); owner != job.owner {
				t.Errorf("job %s was handed to the run %s, and its owner is %s", job.id, job.owner, owner)
			}
		}
		if len(*got) != 5 {
			t.Errorf("%d jobs were handed over", len(*got))
		}
	})
	t.Run("another run has it", func(t *testing.T) {
		r := startRig(t, -1, limitsOf(), nil)
		stays, goes := r.add(t, nil), r.add(t, nil)
		d, wire, got := r.unheardRounds(t)
		lost(t, d, wire)
		r.server.Client().HSet(t.Context(), asynqwire.Key(r.queue, "t:"+goes), "hg_owner", "another:1")
		r.round(t, d)
		if len(*got) != 1 || (*got)[0].id != stays || r.field(t, goes, "hg_owner") != "another:1" {
			t.Errorf("%d jobs were handed over, and %s has the owner %s", len(*got), goes, r.field(t, goes, "hg_owner"))
		}
	})
}

// TestPlacesBesideAnAbsence: while Redis does not answer, the places of the worker are for the jobs of its other
// partitions. The jobs of a reply that was lost before get theirs when it answers again.
func TestPlacesBesideAnAbsence(t *testing.T) {
	t.Parallel()
	const jobs = 5
	r := startRig(t, -1, limitsOf(), nil)
	r.enqueue(t, "a", jobs)
	d, wire, got := r.unheardRounds(t)
	wire.LoseReply(store.DispatchScript.Hash())
	if _, err := d.round(t.Context(), d.room()); err == nil || d.capacity.taken.Load() == 0 {
		t.Fatalf("%v, and %d places are taken; want a lost reply", err, d.capacity.taken.Load())
	}
	silence, ends := make(chan struct{}), make(chan struct{})
	taken := make(chan int64, 100) // places, at each round
	d.redis.AddHook(redistest.OnCommand(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		select {
		case <-ends:
			return next(ctx, cmd)
		default:
		}
		select {
		case taken <- d.capacity.taken.Load():
		default:
		}
		<-silence
		return io.EOF
	}))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { d.Run(ctx) })
	<-taken
	until(t, "the places are free while a round has no answer", func() bool { return d.capacity.taken.Load() == 0 })
	close(silence)
	for range 5 {
		if n := <-taken; n > 0 {
			t.Errorf("%d places are taken for a round", n)
		}
	}
	close(ends)
	until(t, "the jobs have their places", func() bool { return d.capacity.taken.Load() == jobs })
	stop()
	running.Wait()
	if len(*got) != jobs || d.capacity.taken.Load() != jobs {
		t.Errorf("%d jobs were handed over, and %d places are taken", len(*got), d.capacity.taken.Load())
	}
}

// TestRoomOfAllQueues: the queues of a worker share its places, even in concurrent rounds.
func TestRoomOfAllQueues(t *testing.T) {
	t.Parallel()
	const places, jobs = 3, 30
	r := startRig(t, 2*jobs, limitsOf(), nil)
	other := redistest.Queue(t)
	r.worker.config.Queues = append(r.worker.config.Queues, other)
	r.worker.config.Concurrency = places
	worker, err := New(r.worker.config)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	now, most := 0, 0
	step := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		now += n
		most = max(most, now)
	}
	Handle(worker, "call", func(ctx context.Context, _ json.RawMessage) error {
		step(1)
		defer step(-1)
		r.take(ctx)
		time.Sleep(5 * time.Millisecond) // the call itself
		return nil
	})
	r.worker = worker
	r.enqueue(t, "a", jobs)
	for range jobs {
		if _, err := r.client.Enqueue(t.Context(), Job{Kind: "call", Queue: other, Tenant: "a", Payload: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	r.run(t)
	r.receiver.wait(t)
	r.stop()
	if most != places {
		t.Errorf("%d jobs at a time in a worker of %d places", most, places)
	}
}

// TestRoomOfARound: a round hands over no more jobs than there are places, and 50 at most.
func TestRoomOfARound(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	r.enqueue(t, "a", 100)
	for _, test := range []struct{ room, active int64 }{{0, 0}, {4, 4}, {100, 54}} {
		if _, err := r.dispatcher().round(t.Context(), test.room); err != nil {
			t.Fatal(err)
		}
		if n := r.server.Client().LLen(t.Context(), asynqwire.Key(r.queue, "active")).Val(); n != test.active {
			t.Errorf("with room for %d: %d jobs are active; want %d", test.room, n, test.active)
		}
	}
}

// TestLargeJobsOfARound: a round hands over about 2 MiB of messages at most, and the next
// round comes at once.
func TestLargeJobsOfARound(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	const jobs = 8
	for range jobs {
		r.add(t, func(job *Job) { job.Payload = strings.Repeat("x", 900<<10) })
	}
	d := r.dispatcher()
	for _, want := range []int64{3, 6, jobs} {
		if wait, err := d.round(t.Context(), 100); err != nil || wait > 0 && want < jobs {
			t.Errorf("the next round is in %v, %v", wait, err)
		}
		if n := r.server.Client().LLen(t.Context(), asynqwire.Key(r.queue, "active")).Val(); n != want {
			t.Errorf("%d jobs are active; want %d", n, want)
		}
	}
}

// TestRetriesNeverComeEarly: although asynq's retry set has whole seconds, a job never
// returns to its lane before its time.
func TestRetriesNeverComeEarly(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	client := r.server.Client()
	for after := time.Millisecond; after < 2*time.Second; after += 97 * time.Millisecond {
		id := r.add(t, nil)
		r.hold(t, id, "w:1")
		due := client.Time(t.Context()).Val().Add(after)
		r.settles(t, settleQuestion{id: id, outcome: "free", to: fmt.Sprintf("retry %d 1", after.Microseconds())})
		score := client.ZScore(t.Context(), asynqwire.Key(r.queue, "retry"), id).Val()
		if at := time.Unix(int64(score), 0); at.Before(due) || at.Sub(due) > 2*time.Second {
			t.Errorf("after %v it would come back at %v, %v of its time", after, at, at.Sub(due))
		}
	}
}

// TestRunNowIsForItsWorkers: a job that an operator runs now is handed, beyond its limits,
// only to a worker with a handler for it.
func TestRunNowIsForItsWorkers(t *testing.T) {
	r := startRig(t, -1, limitsOf(hourly(1)), nil)
	r.add(t, nil)
	id := r.add(t, nil)
	d := r.dispatcher()
	r.release(t, d, 10)
	run := func() {
		t.Helper()
		if tally, err := operate.Apply(t.Context(), r.server.Client(), r.queue, operate.RunNow, operate.Filter{ID: id}, ann, nil); err != nil || tally.Jobs != 1 {
			t.Fatalf("%+v, %v", tally, err)
		}
	}
	run()
	d.kinds = ",other,"
	r.round(t, d)
	if state := r.field(t, id, "state"); state != "aggregating" {
		t.Errorf("with a worker of another kind it is %s; want it in its lane", state)
	}
	run()
	d.kinds = ",call,"
	r.round(t, d)
	if state := r.field(t, id, "state"); state != "active" {
		t.Errorf("with its worker it is %s", state)
	}
}

// TestJobOfAnUnknownKind: a worker puts away jobs of kinds that it does not handle. A job
// that needs a call goes back unchanged, with its slot.
func TestJobOfAnUnknownKind(t *testing.T) {
	r := startRig(t, -1, limitsOf(perTenant(1)), nil)
	r.run(t)
	id := r.add(t, func(job *Job) { job.Kind = "fax" })
	client, task := r.server.Client(), asynqwire.Key(r.queue, "t:"+id)
	client.HSet(t.Context(), task, "hg_crashes", 3) // as after deaths of workers that have come back since
	client.HSet(t.Context(), task, "hg_lost", fmt.Sprint(r.beating(t), ":1=1"))
	client.ZRem(t.Context(), asynqwire.Key(r.queue, "g:a;kind=fax"), id)
	client.HSet(t.Context(), task, "state", "pending")
	client.LPush(t.Context(), asynqwire.Key(r.queue, "pending"), id)
	r.seen.wait(t, string(lifecycle.Parked), 1)
	r.stop()
	if n := len(r.all()); n != 0 || r.field(t, id, "hg_unsure") != "" || r.field(t, id, "state") == "active" {
		t.Errorf("%d calls; it is %s, and unsure: %q", n, r.field(t, id, "state"), r.field(t, id, "hg_unsure"))
	}
}

// TestEarlierRunEndsTheJob: a job is recovered while its call goes on, and comes back to the
// same worker. Its new run waits for that call. If the call succeeds, it is not repeated,
// even if a reply that was made before the success arrives after it.
func TestEarlierRunEndsTheJob(t *testing.T) {
	for name, test := range map[string]struct {
		earlier error
		comes   string // when the job comes back
		calls   int
	}{
		"it succeeds": {nil, "meanwhile", 1}, "it fails": {errors.New("no"), "meanwhile", 2},
		"it has succeeded": {nil, "after", 1}, "it has failed": {errors.New("no"), "after", 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := startRig(t, -1, limitsOf(perTenant(100), inFlight(1)), nil)
			client, permits := r.server.Client(), store.Key(r.queue, "permits:x:")
			called, end := make(chan struct{}, 2), make(chan struct{})
			r.answer = func(context.Context, Running) error {
				called <- struct{}{}
				if len(r.callsOf("a")) > 1 {
					return nil
				}
				<-end
				return test.earlier
			}
			id, asked := r.add(t, nil), boottime.Now()
			hand, running := r.handsTo(t, &renewals{})
			r.hold(t, id, "w:1")
			hand(id, "w:1", "go", asked)
			<-called
			r.recover(t, id, "10", false)
			r.hold(t, id, "w:2")
			if test.comes == "after" {
				close(end)
				running.Wait()
			}
			client.ZAdd(t.Context(), permits, redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMicro()), Member: id})
			client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "hg_permits", permits)
			hand(id, "w:2", "go", asked)
			if test.comes == "meanwhile" {
				close(end)
			}
			running.Wait()
			if n := len(r.callsOf("a")); n != test.calls || client.Exists(t.Context(), asynqwire.Key(r.queue, "t:"+id)).Val() != 0 {
				t.Errorf("%d calls, and it is %q; want %d, and that it is done", n, r.field(t, id, "state"), test.calls)
			}
			if kept := client.ZCard(t.Context(), permits).Val(); kept != 0 {
				t.Errorf("it has ended, and keeps its permit")
			}
		})
	}
}

// TestAsynqPausesAQueue: nothing is handed over while asynq's tools pause a queue.
func TestAsynqPausesAQueue(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	inspector := asynq.NewInspectorFromRedisClient(r.server.Client())
	r.add(t, nil)
	if _, err := asynq.NewClientFromRedisClient(r.server.Client()).Enqueue(asynq.NewTask("call", []byte(`{}`)), asynq.Queue(r.queue)); err != nil {
		t.Fatal(err)
	}
	if err := inspector.PauseQueue(r.queue); err != nil {
		t.Fatal(err)
	}
	d := r.dispatcher()
	for range 3 {
		r.round(t, d)
	}
	if states := r.states(t); states["active"] != 0 || states["pending"] != 1 || states["aggregating"] != 1 {
		t.Errorf("while it is paused: %v", states)
	}
	if err := inspector.UnpauseQueue(r.queue); err != nil {
		t.Fatal(err)
	}
	until(t, "both go", func() bool {
		r.round(t, d)
		return r.states(t)["active"] == 2
	})
}

// TestCountsOfAsynq: asynq's counters count runs that ended a job or failed, and not runs
// that sent it back to wait.
func TestCountsOfAsynq(t *testing.T) {
	r := startRig(t, -1, limitsOf(), nil)
	for _, step := range []struct {
		outcome, to       string
		processed, failed int
	}{
		{"refused", "retry 1000 0", 0, 0}, {"refused", "lane", 0, 0}, {"keep", "lane", 0, 0}, {"free", "retry 1000 1", 1, 1},
		{"done", "gone", 2, 1}, {"done", "kept 60", 3, 1}, {"failed", "archived", 4, 2},
	} {
		id := r.add(t, nil)
		r.hold(t, id, "w:1")
		r.settles(t, settleQuestion{id: id, outcome: settlement(step.outcome), text: "archived why", to: step.to})
		info, err := asynq.NewInspectorFromRedisClient(r.server.Client()).GetQueueInfo(r.queue)
		if err != nil || info.ProcessedTotal != step.processed || info.FailedTotal != step.failed || info.Processed != step.processed || info.Failed != step.failed {
			t.Errorf("after %s, %s: %d processed, %d today, %d failed, %d today, %v; want %d and %d",
				step.outcome, step.to, info.ProcessedTotal, info.Processed, info.FailedTotal, info.Failed, err, step.processed, step.failed)
		}
	}
}

// TestTasksThatNoWorkerHasSeen: what asynq's client has enqueued for later is found before a worker has given it a lane,
// also in a queue with partitions, and with an id that looks like one of a job with a key.
func TestTasksThatNoWorkerHasSeen(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprint(partitions, " partitions"), func(t *testing.T) {
			t.Parallel()
			server := redistest.Own(t)
			set := limits.Set{Queues: map[string]limits.Queue{"q": {Partitions: partitions}}}
			if err := operate.Publish(t.Context(), server.Client(), set); err != nil {
				t.Fatal(err)
			}
			client, in := asynq.NewClientFromRedisClient(server.Client()), inspect.New(server.Client())
			for _, id := range []string{"plain", "order:4711"} {
				if _, err := client.Enqueue(asynq.NewTask("call", nil), asynq.Queue("q"), asynq.TaskID(id), asynq.ProcessIn(time.Hour)); err != nil {
					t.Fatal(err)
				}
				if tenant, kind, err := in.Owner(t.Context(), "q", id); tenant != "default" || kind != "call" || err != nil {
					t.Errorf("the owner of %s is %q, of kind %q, %v", id, tenant, kind, err)
				}
				if e, err := in.Explain(t.Context(), "q", id); e.State != lifecycle.StateScheduled || err != nil {
					t.Errorf("%s: %+v, %v", id, e, err)
				}
			}
			if _, _, err := in.Owner(t.Context(), "q", "order:none"); !errors.Is(err, lifecycle.ErrNoJob) {
				t.Error(err)
			}
		})
	}
}

// TestTasksOfAsynqsClient: the options Timeout, Deadline, Unique and Retention of asynq's
// own client work.
func TestTasksOfAsynqsClient(t *testing.T) {
	t.Parallel()
	deadline := time.Unix(time.Now().Add(25*time.Second).Unix(), 0) // asynq keeps seconds
	for name, test := range map[string]struct {
		option asynq.Option
		most   time.Duration // from when the call begins; 0: until the deadline
	}{
		"a timeout":       {asynq.Timeout(10 * time.Second), 10 * time.Second},
		"a deadline":      {asynq.Deadline(deadline), 0},
		"a long timeout":  {asynq.Timeout(time.Hour), defaultTimeout},
		"none":            {asynq.MaxRetry(3), defaultTimeout},
		"unique":          {asynq.Unique(time.Hour), defaultTimeout},
		"unique and kept": {asynq.Unique(time.Hour), defaultTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, -1, limitsOf(), nil)
			client := asynq.NewClientFromRedisClient(r.server.Client())
			options := []asynq.Option{asynq.Queue(r.queue), test.option}
			if name == "unique and kept" {
				options = append(options, asynq.Retention(time.Hour))
			}
			enqueue := func() (*asynq.TaskInfo, error) {
				return client.Enqueue(asynq.NewTask("call", []byte(`{}`)), options...)
			}
			ends, began := make(chan [2]time.Time, 1), time.Now()
			r.answer = func(ctx context.Context, _ Running) error {
				end, _ := ctx.Deadline()
				ends <- [2]time.Time{end, time.Now()}
				return nil
			}
			info, err := enqueue()
			if err != nil {
				t.Fatal(err)
			}
			lock := r.field(t, info.ID, "unique_key")
			r.run(t)
			got := <-ends
			if end := got[0]; test.most == 0 && !end.Equal(deadline) {
				t.Errorf("the call ends at %v; want %v", end, deadline)
			} else if test.most > 0 && (end.Before(began.Add(test.most)) || end.After(got[1].Add(test.most))) {
				t.Errorf("the call that began from %v to %v ends at %v; want %v later", began, got[1], end, test.most)
			}
			r.seen.wait(t, string(lifecycle.Done), 1)
			r.stop()
			kept := map[bool]string{true: "completed"}[len(options) == 3]
			if state := r.field(t, info.ID, "state"); state != kept {
				t.Errorf("it is %q; want %q", state, kept)
			}
			if strings.HasPrefix(name, "unique") && (lock == "" || r.server.Client().Exists(t.Context(), lock).Val() != 0) {
				t.Errorf("its lock %q stays", lock)
			}
		})
	}
}

// beating returns the id of a living worker.
func (r *rig) beating(t *testing.T) (id string) {
	t.Helper()
	until(t, "a worker beats", func() bool {
		workers, err := workers.List(t.Context(), r.server.Client())
		for _, w := range workers {
			if slices.Contains(w.Queues, r.queue) {
				id = w.ID
			}
		}
		return err == nil && id != ""
	})
	return id
}

// TestPanic: a panic fails only its own call.
func TestPanic(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3, limitsOf(), nil)
	r.retriesIn = time.Hour
	r.answer = func(_ context.Context, job Running) error {
		if job.Tenant == "a" && job.Attempt == 1 {
			panic("no map")
		}
		return nil
	}
	id := r.add(t, nil)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Retried), 1)
	if text := r.field(t, id, "msg"); !strings.Contains(text, "no map") {
		t.Errorf("its error is not stored: %q", text)
	}
	r.retryNow(t, id)
	r.enqueue(t, "b", 1)
	r.seen.wait(t, string(lifecycle.Done), 2)
}

// TestTimeout: a call that exceeds its handler's timeout is cut off and has failed.
func TestTimeout(t *testing.T) {
	t.Parallel()
	r := startRig(t, 2, limitsOf(), nil)
	Handle(r.worker, "slow", func(ctx context.Context, _ json.RawMessage) error {
		r.take(ctx)
		if job, _ := Current(ctx); job.Attempt > 1 {
			return nil
		}
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("the context ended with %v", ctx.Err())
		}
		return ctx.Err()
	}, Timeout(50*time.Millisecond))
	r.add(t, func(job *Job) { job.Kind = "slow" })
	r.run(t)
	r.seen.wait(t, string(lifecycle.Done), 1)
	if n := r.seen.outcomes(lifecycle.Retried); n != 1 {
		t.Errorf("%d calls failed; want the first", n)
	}
}

// TestNothingIsHandedOverHalf: a job that cannot become active is not handed to a worker.
func TestNothingIsHandedOverHalf(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limits.Set{}, nil)
	client, ctx := r.server.Client(), t.Context()
	id := r.add(t, nil)
	r.runNow(t)
	d, handed := r.handing()
	active := asynqwire.Key(r.queue, "active")
	client.Set(ctx, active, "damaged", 0)
	if got := handed(t, 100); len(got) > 0 {
		t.Errorf("%q were handed over; want none", got)
	}
	client.Del(ctx, active)
	r.release(t, d, 100)
	if got := handed(t, 100); !slices.Equal(got, []string{id}) {
		t.Errorf("%q were handed over after it was mended; want the job", got)
	}
}

// runNow applies the verb run to all jobs of the queue.
func (r *rig) runNow(t *testing.T) {
	t.Helper()
	if _, err := operate.Apply(t.Context(), r.server.Client(), r.queue, operate.RunNow, operate.Filter{}, operate.Operator{Actor: "ann", Reason: "test"}, nil); err != nil {
		t.Fatal(err)
	}
}

// TestPendingWaitsForRoom: jobs that an operator runs now, and jobs that only have to be put
// away, are handed over in order when the worker has room.
func TestPendingWaitsForRoom(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limits.Set{}, nil)
	goes, done := r.add(t, nil), r.add(t, nil)
	r.runNow(t)
	r.server.Client().HSet(t.Context(), asynqwire.Key(r.queue, "t:"+done), "hg_done", "1")
	_, handed := r.handing()
	for room, want := range [][]string{0: nil, 1: {goes}, 2: {goes, done}} {
		if got := handed(t, int64(min(room, 1))); !slices.Equal(got, want) {
			t.Errorf("with room %d, %q were handed over; want %q", room, got, want)
		}
	}
}

// TestPauseHoldsWhatGoesNow: a job that an operator runs now returns to its lane if its
// tenant is paused before a worker takes it.
func TestPauseHoldsWhatGoesNow(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limits.Set{}, nil)
	id := r.add(t, nil)
	r.runNow(t)
	scope, by := inspect.Scope{Tenant: "a"}, operate.Operator{Actor: "ann", Reason: "test"}
	if _, err := operate.PauseJobs(t.Context(), r.server.Client(), r.queue, scope, time.Time{}, by); err != nil {
		t.Fatal(err)
	}
	_, handed := r.handing()
	if got := handed(t, 100); len(got) > 0 || r.states(t)["aggregating"] != 1 {
		t.Errorf("%q were handed over, %v; want the job in its lane", got, r.states(t))
	}
	if _, err := operate.ResumeJobs(t.Context(), r.server.Client(), r.queue, scope, by); err != nil {
		t.Fatal(err)
	}
	if got := handed(t, 100); !slices.Equal(got, []string{id}) {
		t.Errorf("%q were handed over when it was resumed; want the job", got)
	}
}

// TestDamagedPendingJobWaits: a job in asynq's pending list with another state blocks no
// other job, and is not handed to a worker.
func TestDamagedPendingJobWaits(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limits.Set{}, nil)
	damaged, sound := r.add(t, nil), r.add(t, nil)
	r.runNow(t)
	r.server.Client().HSet(t.Context(), asynqwire.Key(r.queue, "t:"+damaged), "state", "completed")
	_, handed := r.handing()
	if got := handed(t, 100); !slices.Equal(got, []string{sound}) {
		t.Errorf("%q were handed over; want the sound job", got)
	}
	if faults, err := inspect.Faults(t.Context(), r.server.Client(), r.queue); err != nil || len(faults) != 1 {
		t.Errorf("faults %+v, %v; want one", faults, err)
	}
}

// handing returns a dispatcher without a worker, and a function that makes a round and
// returns the ids of all jobs handed over so far.
func (r *rig) handing() (*dispatcher, func(t *testing.T, room int64) []string) {
	var ids []string
	d := r.dispatcher()
	d.hand = func(jobs []handed) {
		for _, job := range jobs {
			ids = append(ids, job.id)
		}
	}
	return d, func(t *testing.T, room int64) []string {
		t.Helper()
		if _, err := d.round(t.Context(), room); err != nil {
			t.Fatal(err)
		}
		return ids
	}
}

// TestThirdCrashIsTheLast: a job that crashed three workers is put away without a call.
func TestThirdCrashIsTheLast(t *testing.T) {
	t.Parallel()
	for crashes, want := range map[string]string{"2": "slot", "3": "crashed"} {
		r := startRig(t, -1, limitsOf(perTenant(10)), nil)
		r.server.Client().HSet(t.Context(), asynqwire.Key(r.queue, "t:"+r.add(t, nil)), "hg_crashes", crashes)
		var answers []string
		d := r.dispatcher()
		d.hand = func(jobs []handed) {
			for _, job := range jobs {
				answers = append(answers, string(job.answer))
			}
		}
		if _, err := d.round(t.Context(), 100); err != nil || !slices.Equal(answers, []string{want}) {
			t.Errorf("after %s crashes the answer is %q, %v; want %q", crashes, answers, err, want)
		}
	}
}
