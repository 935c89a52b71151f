package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisscript"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/operate"
)

func discardLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// damagedScripts are all scripts of a queue, each as the programs run it.
func damagedScripts(client *redis.Client) []damagedScript {
	// eval runs a script and returns its error.
	eval := func(ctx context.Context, script *redisscript.Script, args ...any) error {
		_, err := script.Run(ctx, client, store.ScriptKeys(damagedQueue), append([]any{damagedQueue}, args...)...)
		return err
	}
	// windows are the calendars of the limits in force; if those are damaged, or
	// by chance, none.
	windows := func(ctx context.Context, pick *rand.Rand) string {
		text, err := (&effective.Calendars{Queue: damagedQueue, Redis: client}).Text(ctx)
		if err != nil || pick.IntN(10) == 0 {
			return ""
		}
		return text
	}
	// at lists the jobs of a place in random order, sometimes with one that does not exist.
	at := func(pick *rand.Rand, s sight, place string) []string {
		var ids []string
		for id, places := range s.Places {
			if slices.Contains(places, place) {
				ids = append(ids, id)
			}
		}
		slices.Sort(ids)
		pick.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		if pick.IntN(4) == 0 {
			ids = append(ids, "nobody")
		}
		return ids
	}
	owner := func(s sight, id string) string { return s.Fields[id]["hg_owner"] }

	var scripts []damagedScript
	add := func(name string, run func(ctx context.Context, pick *rand.Rand, s sight) error) {
		again := slices.Contains([]string{
			"dispatch", "slot", "settle", "recover", "late", "sweep", "janitor", "watch", "archive", "gauges",
			"periodic look", "periodic choose", "periodic mark", "periodic fire",
		}, strings.TrimSuffix(name, " a"))
		scripts = append(scripts, damagedScript{name, again, run})
	}
	add("dispatch", func(ctx context.Context, pick *rand.Rand, s sight) error {
		reply, err := store.DispatchScript.Run(ctx, client, store.ScriptKeys(damagedQueue), damagedQueue, 100, 100, store.Horizon.Microseconds(), pickup.Microseconds(), windows(ctx, pick), ",call,", time.Minute.Microseconds(), "w", 1000, pick.IntN(2), pick.IntN(3)-1, leadLasts.Milliseconds(), pick.IntN(2))
		if err == nil && !s.whole && reply.([]any)[8] == int64(0) {
			return errors.New("nothing was understood, though no key of the whole queue is damaged")
		}
		return err
	})
	add("slot", func(ctx context.Context, pick *rand.Rand, s sight) error {
		ids := append(at(pick, s, "active"), "nobody")
		return eval(ctx, store.SlotScript, (2 * store.Horizon).Microseconds(), inHand.Microseconds(), windows(ctx, pick),
			ids[0], owner(s, ids[0]), "a", "", "call", "1", "tokens=3", time.Minute.Microseconds(), store.Endless)
	})
	add("settle", func(ctx context.Context, pick *rand.Rand, s sight) error {
		args := []any{windows(ctx, pick), pickup.Microseconds(), "2026-01-01", 1800000000}
		for _, id := range at(pick, s, "active") {
			outcome := []string{"done", "failed", "keep", "free", "unsure", "refused", "alone"}[pick.IntN(7)]
			text, record := "", ""
			to := map[string]string{"done": "kept 60", "failed": "archived", "alone": "", "keep": "retry 1000000 0", "free": "retry 1000000 1", "unsure": "lane", "refused": "gone"}[outcome]
			s.gone[id] = to == "gone"
			if outcome == "failed" {
				text, record = "archived no", "archived permanent 1 1 1 0 0 no"
			}
			args = append(args, id, owner(s, id), "a", "call", outcome, pick.IntN(2)*1000000, "tenant slow down", "tokens=1", text, record, to, "")
		}
		return eval(ctx, store.SettleScript, args...)
	})
	add("janitor", func(ctx context.Context, _ *rand.Rand, _ sight) error { return eval(ctx, store.JanitorScript, 100) })
	add("recover", func(ctx context.Context, pick *rand.Rand, s sight) error {
		return eval(ctx, store.RecoverScript, recoverArgs(ctx, client, s, at(pick, s, "active"))...)
	})
	add("late", func(ctx context.Context, pick *rand.Rand, s sight) error {
		ids := append(at(pick, s, "g:a;kind=call"), "nobody")
		return eval(ctx, store.LateScript, ids[0], "worker:9", "a", "call", "1", "", "ok", "1", "1")
	})
	for _, tenant := range []string{"", "a"} {
		add(strings.TrimSpace("sweep "+tenant), func(ctx context.Context, pick *rand.Rand, _ sight) error {
			_, err := effective.SweepSlice(ctx, client, damagedQueue, tenant, "0", windows(ctx, pick), tenant == "")
			return err
		})
	}
	for _, verb := range []operate.Verb{operate.Cancel, operate.RunNow, operate.RetryArchived, operate.DeleteArchived} {
		places := []string{"scheduled", "retry", "lanes", "pending", "active"}
		if verb == operate.RetryArchived || verb == operate.DeleteArchived {
			places = []string{"archived", "archive"}
		}
		for _, place := range places {
			add(fmt.Sprint("verbs ", verb, " ", place), func(ctx context.Context, pick *rand.Rand, s sight) error {
				args := []any{string(verb), "0", place, "", 100, "", "", time.Now().Add(time.Hour).UnixMicro(), "not wanted", "cli {", 0, windows(ctx, pick), ""}
				if place == "lanes" {
					lanes, _ := client.SMembers(ctx, asynqwire.Key(damagedQueue, "groups")).Result()
					for _, lane := range lanes {
						args = append(args, lane)
					}
				}
				return eval(ctx, store.VerbsScript, args...)
			})
		}
	}
	add("enqueue", func(ctx context.Context, pick *rand.Rand, _ sight) error {
		var jobs []Job
		for i := range 6 {
			jobs = append(jobs, Job{Kind: "call", Queue: damagedQueue, Tenant: string(rune('a' + i%3)), Key: fmt.Sprint("key", i), KeyUntil: Ended, Payload: i})
		}
		for _, result := range NewClient(client).EnqueueMany(ctx, jobs) {
			if result.Err == nil {
				return nil // rejected jobs are rejected alone
			}
		}
		return nil
	})
	add("pause", func(ctx context.Context, pick *rand.Rand, _ sight) error {
		_, _ = operate.PauseJobs(ctx, client, damagedQueue, inspect.Scope{Tenant: "a"}, time.Now().Add(time.Hour), operate.Operator{Actor: "x", Reason: "y"})
		return nil
	})
	add("resume", func(ctx context.Context, pick *rand.Rand, _ sight) error {
		_, _ = operate.ResumeJobs(ctx, client, damagedQueue, inspect.Scope{}, operate.Operator{Actor: "x", Reason: "y"})
		return nil
	})
	add("watch", func(ctx context.Context, pick *rand.Rand, _ sight) error {
		_, err := store.WatchScript.Run(ctx, client, []string{store.Key(damagedQueue, "watcher")}, damagedQueue, fmt.Sprint("worker", pick.IntN(2)), 2000)
		return err
	})
	periodic := func(name string, script *redisscript.Script, key string, args func(tick int64) []any) {
		add("periodic "+name, func(ctx context.Context, pick *rand.Rand, _ sight) error {
			_, err := script.Run(ctx, client, []string{key}, args(time.Now().Unix()-int64(pick.IntN(3)))...)
			return err
		})
	}
	periodic("look", store.PeriodicLookScript, periodicFiredKey, func(tick int64) []any { return []any{tick} })
	periodic("choose", store.PeriodicChooseScript, periodicFiredKey, func(tick int64) []any {
		return []any{"hourly", tick, damagedQueue, "call;;a", "new", tick, damagedQueue, "call;;a"}
	})
	periodic("mark", store.PeriodicMarkScript, periodicFiredKey, func(tick int64) []any { return []any{"hourly", tick, "new", tick} })
	periodic("set", store.PeriodicSetScript, periodicKey, func(int64) []any {
		return []any{"hourly", "false", `"spec":"@every 60s","zone":"","max_late_seconds":60,"job":{}}`, `"spec":"@every 60s","zone":"",`}
	})
	periodic("pause", store.PeriodicSetScript, periodicKey, func(int64) []any { return []any{"hourly", "true", "", ""} })
	// A tick is recorded as fired if and only if its job was enqueued.
	add("periodic fire", func(ctx context.Context, pick *rand.Rand, s sight) error {
		tick := time.Now().Unix() - int64(pick.IntN(3))
		a, err := Job{Kind: "call", Queue: damagedQueue, Tenant: "a", Payload: 1}.accept(damagedQueue, time.Now())
		if err != nil {
			return err
		}
		fence := store.Key(damagedQueue, "periodic")
		overlap := string(overlaps[pick.IntN(len(overlaps))])
		if err := eval(ctx, store.PeriodicFireScript, a.append([]any{1, "", "hourly", tick, overlap})...); err != nil {
			return err
		}
		score, _ := client.ZScore(ctx, fence, "hourly").Result()
		enqueued := client.Exists(ctx, asynqwire.Key(damagedQueue, "t:"+a.id)).Val() == 1
		if fenced := score == float64(tick); fenced != enqueued {
			return fmt.Errorf("the tick is in the fence: %v; its job was enqueued: %v", fenced, enqueued)
		}
		return nil
	})
	add("archive", func(ctx context.Context, _ *rand.Rand, _ sight) error {
		return eval(ctx, store.ArchiveScript, 0, 1, 100)
	})
	add("gauges", func(ctx context.Context, pick *rand.Rand, _ sight) error {
		return eval(ctx, store.GaugesScript, windows(ctx, pick), 32, "*", "a")
	})
	for _, tenant := range []string{"", "a"} {
		add(strings.TrimSpace("levels "+tenant), func(ctx context.Context, pick *rand.Rand, _ sight) error {
			return eval(ctx, store.LevelsScript, windows(ctx, pick), tenant)
		})
	}
	add("explain", func(ctx context.Context, pick *rand.Rand, s sight) error {
		ids := append(at(pick, s, "g:a;kind=call"), "nobody")
		return eval(ctx, store.ExplainScript, windows(ctx, pick), "a;kind=call", ids[0], 1, strconv.FormatInt(time.Now().UnixMicro(), 10), "b;kind=call")
	})
	for _, state := range []string{"scheduled", "retry", "pending", "active", "archived"} {
		add("jobs "+state, func(ctx context.Context, _ *rand.Rand, _ sight) error {
			return eval(ctx, store.JobsScript, state, "", "", 100, 100, "", "", "", "")
		})
	}
	return scripts
}

// recoverArgs returns the arguments of recover.lua for jobs of dead workers.
func recoverArgs(ctx context.Context, client *redis.Client, s sight, ids []string) []any {
	var args []any
	for _, id := range ids {
		lease := ""
		if score, err := client.ZScore(ctx, asynqwire.Key(damagedQueue, "lease"), id).Result(); err == nil {
			lease = strconv.FormatFloat(score, 'f', 0, 64)
		}
		args = append(args, id, lease, s.Fields[id]["hg_owner"], "1")
	}
	return args
}
