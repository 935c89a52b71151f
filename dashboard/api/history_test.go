package api

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// seconds adds looks at a queue that makes 30 calls a second, and answers with what
// its seconds were like.
func seconds(h *history, began time.Time, looks ...time.Duration) []point {
	for _, after := range looks {
		n := int64(after * 30 / time.Second)
		h.add([]string{"q"}, []inspect.Totals{{Queue: "q", At: began.Add(after), Calls: n, Waiting: 1, Answers: map[lifecycle.Answer]int64{lifecycle.AnswerOK: n}}}, map[string]float64{"q": 30})
	}
	_, points := h.of("q")
	return points
}

// TestHistoryIsOfSeconds: seconds of equal traffic are equal, whenever it was looked
// at: at once for who begins to watch, late, or not at all for a while. A second that
// is not over, and one that was seen in part, are none.
func TestHistoryIsOfSeconds(t *testing.T) {
	var h history
	const ms = time.Millisecond
	whole := time.Now().Truncate(time.Second)
	points := seconds(&h, whole.Add(200*ms), 0, 1000*ms, 1600*ms, 1700*ms, 3300*ms, 4100*ms, 5100*ms, 8100*ms, 9100*ms)
	if from, _ := h.of("q"); len(points) != 8 || !from.Equal(whole.Add(time.Second)) {
		t.Errorf("%d seconds from %v on; want 8 from %v on", len(points), from, whole.Add(time.Second))
	}
	for i, p := range points {
		if math.Abs(float64(p.Sent)-30) > 0.01 || math.Abs(float64(p.Answers[lifecycle.AnswerOK])-30) > 0.01 || p.Allowed != 30 {
			t.Errorf("second %d: %+v; want 30 calls", i, p)
		}
	}
}

// TestHistoryTellsWhatEnded: each second is told once, when it is over.
func TestHistoryTellsWhatEnded(t *testing.T) {
	var h history
	whole := time.Now().Truncate(time.Second)
	look := func(after time.Duration, want int) {
		t.Helper()
		got := 0
		for _, n := range h.add([]string{"q"}, []inspect.Totals{{Queue: "q", At: whole.Add(after)}}, nil) {
			got += len(n.points)
			if end := n.from.Add(time.Duration(len(n.points)) * time.Second); end.After(whole.Add(after)) || whole.Add(after).Sub(end) >= time.Second {
				t.Errorf("at %v it tells of seconds until %v", after, end.Sub(whole))
			}
		}
		if got != want {
			t.Errorf("at %v %d seconds ended, want %d", after, got, want)
		}
	}
	look(500*time.Millisecond, 0)
	look(1500*time.Millisecond, 0) // the first was seen in part
	look(2*time.Second, 1)
	look(2900*time.Millisecond, 0)
	look(2800*time.Millisecond, 0) // another Redis has another clock
	look(5100*time.Millisecond, 3)
	look(2*time.Hour, 0) // nothing is left of what was
	look(2*time.Hour+2*time.Second, 1)
	if _, points := h.of("q"); len(points) != 1 {
		t.Errorf("%d seconds are left", len(points))
	}
	h.add([]string{"q"}, nil, nil)
	if _, points := h.of("q"); len(points) != 1 {
		t.Errorf("a queue that does not answer for once has %d seconds", len(points))
	}
	h.add(nil, nil, nil)
	if from, points := h.of("q"); points != nil || !from.IsZero() {
		t.Error("a queue that is gone is remembered")
	}
}

// TestHistoriesAreBounded: however many queues there are, the memory of their histories is bounded,
// and those that have one keep it.
func TestHistoriesAreBounded(t *testing.T) {
	var h history
	now := time.Now()
	var all []inspect.Totals
	for i := range maxHistories {
		all = append(all, inspect.Totals{Queue: fmt.Sprintf("q%d", i), At: now})
	}
	names := func(all []inspect.Totals) (names []string) {
		for _, t := range all {
			names = append(names, t.Queue)
		}
		return names
	}
	h.add(names(all), all, nil)
	for i := range 10 * maxHistories {
		all = append([]inspect.Totals{{Queue: fmt.Sprintf("made-up-%d", i), At: now}}, all...)
	}
	h.add(names(all), all, nil)
	if len(h.queues) != maxHistories || h.queues["q0"] == nil || h.queues["made-up-0"] != nil {
		t.Errorf("%d histories", len(h.queues))
	}
	all = all[1 : 10*maxHistories]
	h.add(names(all), all, nil)
	if len(h.queues) != maxHistories {
		t.Errorf("%d histories after the others are gone", len(h.queues))
	}
}

// TestUnreadQueueKeepsItsRate: a queue that does not answer for once has the rate that it had.
func TestUnreadQueueKeepsItsRate(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := newRig(t, server, nil)
	r.publish(throttle.PerSecond(7))
	for range 5 {
		r.want(202, "", "POST", "/jobs", r.job("acme", ""))
	}
	if err := operate.Publish(t.Context(), r.redis, limits.Set{Queues: map[string]limits.Queue{"other": {}}}); err != nil {
		t.Fatal(err)
	}
	away := server.Client()
	a, err := New(Config{Redis: away})
	if err != nil {
		t.Fatal(err)
	}
	w := newWatch(a)
	w.names = []string{"other", r.queue}
	rate := func() float64 {
		if _, err := w.overviews(t.Context()); err != nil {
			t.Fatal(err)
		}
		return w.allowed[r.queue]
	}
	if before := rate(); math.Abs(before-7) > 0.01 {
		t.Fatalf("%v calls a second are allowed, want 7", before)
	}
	away.AddHook(redistest.OnCommand(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if strings.Contains(fmt.Sprint(cmd.Args()...), r.queue) {
			return errors.New("refused")
		}
		return next(ctx, cmd)
	}))
	if _, err := a.inspector.Overview(t.Context(), r.queue); err == nil {
		t.Fatal("the queue answers")
	}
	if after := rate(); math.Abs(after-7) > 0.01 {
		t.Errorf("%v calls a second are allowed, want 7", after)
	}
}

// TestHistoryKnowsWhatLimitsLetGo: also of seconds at which nobody looked.
func TestHistoryKnowsWhatLimitsLetGo(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Start(t), nil)
	r.publish(throttle.PerSecond(7))
	for range 5 {
		r.want(202, "", "POST", "/jobs", r.job("acme", ""))
	}
	a, err := New(Config{Redis: r.redis}) // it has read nothing yet
	if err != nil {
		t.Fatal(err)
	}
	w := newWatch(a)
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) { // it is time that makes history
		w.lookAtAll(t.Context())
		_, points := w.history.of(r.queue)
		if len(points) == 0 && time.Now().Before(end) {
			continue
		}
		for _, p := range points {
			if math.Abs(p.Allowed-7) > 0.01 || p.Waiting != 5 {
				t.Errorf("%+v; want 7 a second for 5 jobs that wait", p)
			}
		}
		return
	}
}
