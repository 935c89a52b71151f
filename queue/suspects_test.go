package queue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/workers"
)

const poisonEnv = "HEADGATE_TEST_POISON"

// poisonPayload is the payload of the jobs in these tests.
type poisonPayload struct {
	Poison bool
	Takes  time.Duration
}

// TestPoisonJobs: jobs that kill their worker with each call are archived after a few
// crashes, and no other job is.
func TestPoisonJobs(t *testing.T) {
	redistest.Slow(t)
	t.Parallel()
	for name, poison := range map[string][]int{"one": {50}, "three": {20, 50, 80}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const jobs = 101
			server := redistest.Start(t)
			ctx, client := t.Context(), server.Client()
			if err := operate.Publish(ctx, client, limits.Set{Queues: map[string]limits.Queue{"jobs": {Limits: []limits.Limit{perTenant(1000)}}}}); err != nil {
				t.Fatal(err)
			}
			kills := map[string]bool{}
			for i := range jobs {
				bad := slices.Contains(poison, i)
				receipt, err := NewClient(client).Enqueue(ctx, Job{
					Kind: "call", Queue: "jobs", Tenant: "a", Payload: poisonPayload{bad, 100 * time.Millisecond},
				})
				if err != nil {
					t.Fatal(err)
				}
				if bad {
					kills[receipt.ID] = true
				}
			}
			crashes := 0
			for ; poisonProcess(t, server, "jobs"); crashes++ {
				if crashes == 6*len(poison) {
					t.Fatalf("%d crashes, and it goes on", crashes)
				}
				recoverAll(t, client, "jobs")
			}
			page, err := inspect.New(client).ListJobs(ctx, "jobs", inspect.JobQuery{State: lifecycle.StateArchived, Limit: 100})
			archived := page.Jobs
			if err != nil || len(archived) != len(poison) {
				t.Errorf("%d archived, %v; want the %d poison jobs", len(archived), err, len(poison))
			}
			for _, job := range archived {
				if !kills[job.ID] || job.Outcome != lifecycle.Crashed {
					t.Errorf("%+v is archived; poison: %v", job, kills[job.ID])
				}
			}
			if done := countsOf(t, client, "jobs", "a").Done; done != int64(jobs-len(poison)) {
				t.Errorf("%d jobs are done", done)
			}
			t.Logf("%d crashes", crashes)
		})
	}
}

// poisonProcess runs a worker until it is killed by a job, or has nothing left to do.
func poisonProcess(t *testing.T, server *redistest.Server, queue string) (killed bool) {
	t.Helper()
	process := exec.Command(os.Args[0], "-test.run=^TestPoisonProcess$")
	process.Env = append(os.Environ(), poisonEnv+"="+server.Addr()+" "+queue)
	process.Stdout, process.Stderr = t.Output(), t.Output()
	err := process.Run()
	if err != nil && process.ProcessState.ExitCode() != poisonExit {
		t.Fatal(err)
	}
	return err != nil
}

// recoverAll recovers all jobs of a dead worker, like other workers after its silence.
func recoverAll(t *testing.T, client redis.UniversalClient, queue string) {
	t.Helper()
	held, err := asynqwire.Leases(t.Context(), client, queue)
	if err != nil {
		t.Fatal(err)
	}
	args := []any{queue}
	for id, lease := range held {
		owner := client.HGet(t.Context(), asynqwire.Key(queue, "t:"+id), "hg_owner").Val()
		client.Del(t.Context(), workers.Key(workers.Of(owner)))
		args = append(args, id, lease, owner, "1")
	}
	if taken, err := store.RecoverScript.Run(t.Context(), client, store.ScriptKeys(queue), args...); err != nil || taken != int64(len(held)) {
		t.Fatalf("%v of %d jobs were taken, %v", taken, len(held), err)
	}
}

const poisonExit = 66

// TestPoisonProcess is the worker process of TestPoisonJobs.
func TestPoisonProcess(t *testing.T) {
	var addr, name string
	if _, err := fmt.Sscan(os.Getenv(poisonEnv), &addr, &name); err != nil {
		return // run as a normal test: there is nothing to do
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	worker := newWorker(t, Config{Redis: &redis.UniversalOptions{Addrs: []string{addr}}, Queues: []string{name}})
	Handle(worker, "call", func(_ context.Context, payload poisonPayload) error {
		if payload.Poison {
			os.Exit(poisonExit)
		}
		time.Sleep(payload.Takes) // the call itself
		return nil
	})
	stop := runWorker(t, worker)
	for left := int64(1); left > 0; time.Sleep(5 * time.Millisecond) {
		left = client.Exists(t.Context(), asynqwire.Key(name, "pending"), asynqwire.Key(name, "active"), asynqwire.Key(name, "retry"), store.Key(name, "waiting"), store.Key(name, "ready")).Val()
	}
	stop()
}

// TestSuspectsWait: a suspect that waits for its turn delays no other jobs, in its own queue
// or in others, and spends no slot.
func TestSuspectsWait(t *testing.T) {
	t.Parallel()
	const suspects = 3
	other := redistest.Queue(t) + "-other"
	r := startRig(t, -1, limitsOf(hourly(suspects+1)), func(c *Config) { c.Queues = append(c.Queues, other) })
	released, called := make(chan struct{}), make(chan string, 10)
	release := sync.OnceFunc(func() { close(released) })
	defer release()
	next := func(what string) string {
		t.Helper()
		select {
		case id := <-called:
			return id
		case <-time.After(time.Minute):
			t.Fatalf("%s was not called", what)
			return ""
		}
	}
	r.answer = func(_ context.Context, job Running) error {
		called <- job.ID
		if job.Queue == r.queue {
			<-released
		}
		return nil
	}
	open := r.add(t, nil)
	r.run(t)
	if id := next("the first job"); id != open {
		t.Fatal(id)
	}
	// They were in flight when two workers died.
	suspected := map[string]bool{}
	for range suspects {
		id := r.add(t, func(job *Job) { job.In = time.Second })
		r.server.Client().HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "hg_crashes", 2)
		suspected[id] = true
	}
	first := next("a suspect")
	if mark := r.field(t, first, "hg_called"); !suspected[first] || mark != "beside" {
		t.Fatalf("called %s, which is marked %q", first, mark)
	}
	// The others ask for their turn again and again. The limit is hourly, so one that spent a slot
	// while it waits would leave too few.
	r.seen.wait(t, string(lifecycle.Parked), 2*suspects)
	for range 3 {
		r.add(t, func(job *Job) { job.Queue = other })
		if id := next("a job of another queue"); suspected[id] {
			t.Error("two suspects were called at once")
		}
	}
	release()
	r.seen.wait(t, string(lifecycle.Done), 1+suspects+3)
	r.stop()
}

// TestSuspectIsNotAlone: before another call starts next to a suspect's call, the suspect is
// marked as not alone.
func TestSuspectIsNotAlone(t *testing.T) {
	s := newSuspects(10)
	var notes []string
	mark := func(turn *turn) {
		s.mark(turn, func(alone bool) bool {
			notes = append(notes, fmt.Sprint("alone ", alone))
			return true
		})
	}
	turn := s.take(t.Context(), background, func() { notes = append(notes, "joined") })
	s.enter()() // it starts before the mark, and ends before it
	mark(turn)
	leave := s.enter()
	s.enter()()
	mark(turn) // another slot, while a call is under way
	leave()
	s.pass()
	turn = s.take(t.Context(), background, nil)
	mark(turn)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if s.take(gone, background, nil) != nil {
		t.Error("two suspects have the turn")
	}
	if want := []string{"alone true", "joined", "alone false", "alone true"}; !slices.Equal(notes, want) {
		t.Errorf("notes = %q; want %q", notes, want)
	}
}

func background(f func()) { go f() }

// TestSuspectBesideAnAbsence: while Redis does not answer, calls wait for the mark of a suspect once, and not for long.
// The suspect is marked as not alone when Redis answers.
func TestSuspectBesideAnAbsence(t *testing.T) {
	for name, during := range map[string]string{"when a call begins": "join", "before the suspect's call": "mark"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, answers := newSuspects(10), make(chan struct{})
			asked, joined := make(chan struct{}, 1), make(chan struct{}, 10)
			ask := func(what string) {
				if what == during {
					asked <- struct{}{}
					<-answers
				}
			}
			turn, marked := s.take(t.Context(), background, func() {
				ask("join")
				joined <- struct{}{}
			}), make(chan struct{})
			go func() {
				defer close(marked)
				s.mark(turn, func(bool) bool {
					ask("mark")
					return true
				})
			}()
			if during == "mark" {
				<-asked
			} else {
				<-marked
			}
			enter := func() time.Duration {
				began, entered := time.Now(), make(chan struct{})
				go func() {
					s.enter()
					close(entered)
				}()
				select {
				case <-entered:
				case <-time.After(hang):
					t.Fatal("a call waits for the mark")
				}
				return time.Since(began)
			}
			if first := enter(); first < store.AwayAfter {
				t.Errorf("the first call waited for %v", first)
			}
			for range 3 {
				if next := enter(); next >= store.AwayAfter {
					t.Errorf("the next call waited for %v", next)
				}
			}
			close(answers)
			<-marked
			<-joined
			if enter(); len(joined) > 0 {
				t.Error("it was marked as not alone twice")
			}
			s.pass()
		})
	}
}

// TestGuilt: which deaths of workers count as crashes of the jobs that they held.
func TestGuilt(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	ctx, client := t.Context(), r.server.Client()
	for name, test := range map[string]struct {
		marks []string // at each death; "": it was held, and not called
		want  string
	}{
		"held again and again":       {[]string{"", "", "", "", "", ""}, "1"},
		"called, then only held":     {[]string{"", "beside", "", "", ""}, "2"},
		"alone":                      {[]string{"", "alone", "alone"}, "3"},
		"beside others":              {[]string{"", "beside", "beside", "beside"}, "2"},
		"beside others, three times": {[]string{"", "beside", "beside", "beside", "beside"}, "3"},
		"at last alone":              {[]string{"", "beside", "beside", "alone"}, "3"},
	} {
		id := r.add(t, nil)
		task := asynqwire.Key(r.queue, "t:"+id)
		for i, mark := range test.marks {
			client.ZRem(ctx, asynqwire.Key(r.queue, "g:a;kind=call"), id)
			client.LPush(ctx, asynqwire.Key(r.queue, "active"), id)
			client.HSet(ctx, task, "state", "active", "hg_owner", fmt.Sprint("w", i))
			if mark != "" {
				client.HSet(ctx, task, "hg_called", mark)
			}
			r.recover(t, id, "", true)
		}
		if got := r.field(t, id, "hg_crashes"); got != test.want {
			t.Errorf("%s: crashes = %s, want %s", name, got, test.want)
		}
	}
}

// TestCallThatEndsClears: a call that ends clears its job of suspicion.
func TestCallThatEndsClears(t *testing.T) {
	t.Parallel()
	r := startRig(t, -1, limitsOf(), nil)
	r.retriesIn = time.Hour
	var unsure []bool
	r.answer = func(_ context.Context, job Running) error {
		if unsure = append(unsure, job.Unsure); len(unsure) == 1 {
			return errors.New("500")
		}
		return nil
	}
	id := r.add(t, nil)
	r.server.Client().HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "hg_crashes", 2, "hg_beside", 2)
	r.run(t)
	r.seen.wait(t, string(lifecycle.Retried), 1)
	if crashes, beside := r.field(t, id, "hg_crashes"), r.field(t, id, "hg_beside"); crashes != "0" || beside != "" {
		t.Errorf("crashes = %q, beside = %q", crashes, beside)
	}
	r.retryNow(t, id)
	r.seen.wait(t, string(lifecycle.Done), 1)
	if !slices.Equal(unsure, []bool{true, true}) {
		t.Errorf("unsure of an earlier call: %v", unsure)
	}
}

// TestSuspectGetsItsSlotInTurn: a suspect may wait for others for long before it is called, so it comes to the worker
// without a slot, and takes nothing of its limits until its turn has come.
func TestSuspectGetsItsSlotInTurn(t *testing.T) {
	t.Parallel()
	r := startRig(t, 0, limitsOf(perHour("tenant", 5)), nil)
	client := r.server.Client()
	for crashes, taken := range map[string]bool{"1": true, "2": false} {
		id := r.add(t, func(job *Job) { job.Tenant = "after-" + crashes })
		if err := client.HSet(t.Context(), asynqwire.Key(r.queue, "t:"+id), "hg_crashes", crashes).Err(); err != nil {
			t.Fatal(err)
		}
		if ids := r.release(t, r.dispatcher(), 10); !slices.Contains(ids, id) {
			t.Fatalf("%s is not released: %v", id, ids)
		}
		_, latest := parseSlot(t, r.field(t, id, "hg_slot"))
		bucket := client.Exists(t.Context(), store.Key(r.queue, "b:tenant:after-"+crashes)).Val()
		if latest > 0 != taken || bucket > 0 != taken {
			t.Errorf("after %s deaths of its workers: slot %d, and a bucket: %d", crashes, latest, bucket)
		}
	}
}
