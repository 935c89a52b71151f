package queue

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

// redisPage is the content of docs/redis.md.
type redisPage struct {
	keys, global, asynqs, fields []string // names in the first columns, as they are written
	formats                      []string // functions and files behind the text formats
}

var quoted = regexp.MustCompile("`([^`]+)`")

func readRedisPage(t *testing.T) redisPage {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleRoot(t), "docs", "redis.md"))
	if err != nil {
		t.Fatal(err)
	}
	var page redisPage
	section := ""
	for line := range strings.Lines(string(text)) {
		if heading, found := strings.CutPrefix(line, "## "); found {
			section = strings.TrimSpace(heading)
		}
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		var names []string
		for _, match := range quoted.FindAllStringSubmatch(cells[1], -1) {
			names = append(names, match[1])
		}
		switch section {
		case "Keys of a queue":
			page.keys = append(page.keys, names...)
		case "Keys of all queues":
			page.global = append(page.global, names...)
		case "Keys of asynq that Headgate writes":
			page.asynqs = append(page.asynqs, names...)
			for _, match := range quoted.FindAllStringSubmatch(cells[2], -1) {
				page.asynqs = append(page.asynqs, match[1])
			}
		case "Fields of a task's hash":
			page.fields = append(page.fields, names...)
		case "Text formats":
			for _, match := range quoted.FindAllStringSubmatch(cells[3]+cells[4], -1) {
				page.formats = append(page.formats, match[1])
			}
		}
	}
	if len(page.keys) < 30 || len(page.global) < 10 || len(page.asynqs) < 10 || len(page.fields) < 20 || len(page.formats) < 20 {
		t.Fatalf("docs/redis.md has lost its tables: %+v", page)
	}
	return page
}

// moduleRoot is the folder of go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
		if folder == filepath.Dir(folder) {
			t.Fatal("no go.mod is above this package")
		}
		folder = filepath.Dir(folder)
	}
}

// codeOfKeys returns the text of all Lua and Go files that are not tests, by file.
func codeOfKeys(t *testing.T) map[string]string {
	t.Helper()
	root, code := moduleRoot(t), map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		if entry.IsDir() {
			if slices.Contains([]string{".git", "bench", "internal/test", "internal/test/redistest", "dashboard/web"}, name) || entry.Name() == "node_modules" || entry.Name() == "queuetest" {
				return filepath.SkipDir
			}
			return nil
		}
		if ext := filepath.Ext(name); (ext == ".go" && !strings.HasSuffix(name, "_test.go")) || ext == ".lua" {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			code[name] = string(text)
		}
		return nil
	})
	if err != nil || len(code) < 100 {
		t.Fatalf("%d files of code: %v", len(code), err)
	}
	return code
}

var (
	keyInLua    = regexp.MustCompile(`(?:headgate|'headgate:\{' \.\. ARGV\[1\] \.\. '\}:)(?: \.\. ')?([a-z_]+:?)'`)
	keyInGo     = regexp.MustCompile(`(?:\bstore\.|[^.\w])Key\([\w.]+, "([a-z_]+:?)"`)
	globalInGo  = regexp.MustCompile(`"(headgate:(?:\{asynq:queues\}:)?[a-z][a-z:]*)"`)
	fieldInCode = regexp.MustCompile(`\bhg_[a-z_]+\b`)
)

// TestRedisPageNamesTheCode: docs/redis.md names every key and field of the code, and none
// that is not in the code.
func TestRedisPageNamesTheCode(t *testing.T) {
	t.Parallel()
	page, code := readRedisPage(t), codeOfKeys(t)
	keys, global, fields := map[string]string{}, map[string]string{}, map[string]string{}
	var all strings.Builder
	for file, text := range code {
		all.WriteString(filepath.Base(file) + "\n" + text)
		find := func(found map[string]string, pattern *regexp.Regexp) {
			for _, match := range pattern.FindAllStringSubmatch(text, -1) {
				found[match[len(match)-1]] = file
			}
		}
		find(keys, keyInLua)
		if strings.HasSuffix(file, ".go") {
			if !strings.Contains(file, "asynqwire") {
				find(keys, keyInGo)
			}
			find(global, globalInGo)
		}
		find(fields, fieldInCode)
	}
	delete(keys, "wake") // a channel
	compare := func(what string, found map[string]string, named []string) {
		t.Helper()
		without := map[string]bool{}
		for _, name := range named {
			if at := strings.Index(name, "<"); at >= 0 {
				name = name[:at]
			}
			without[name] = true
		}
		for name, file := range found {
			if !without[name] {
				t.Errorf("docs/redis.md does not describe the %s %s of %s", what, name, file)
			}
		}
		for name := range without {
			if found[name] == "" {
				t.Errorf("docs/redis.md describes the %s %s, which is not in the code", what, name)
			}
		}
	}
	compare("key", keys, page.keys)
	compare("key", global, page.global)
	compare("field", fields, slices.DeleteFunc(slices.Clone(page.fields), func(name string) bool { return !strings.HasPrefix(name, "hg_") }))
	words := map[string]bool{}
	for _, word := range regexp.MustCompile(`[\w.]+`).FindAllString(all.String(), -1) {
		words[word] = true
		for part := range strings.SplitSeq(word, ".") {
			words[part] = true
		}
	}
	for _, name := range page.formats {
		if _, method, found := strings.Cut(name, "."); found && !strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, ".lua") {
			name = method
		}
		if !words[name] {
			t.Errorf("docs/redis.md names %s, which is not in the code", name)
		}
	}
}

// described reports whether a name matches one of the page's names, in which <parts> stand
// for any text.
func described(name string, page []string) bool {
	return slices.ContainsFunc(page, func(pattern string) bool {
		text := regexp.MustCompile(`<[a-z]+>`).ReplaceAllString(regexp.QuoteMeta(pattern), `.*`)
		return regexp.MustCompile(`^` + text + `$`).MatchString(name)
	})
}

// TestRedisPageDescribesALife: docs/redis.md describes everything that a queue with limits,
// pauses, holds, failures, follow-ups, periodic jobs and overrides writes to Redis.
func TestRedisPageDescribesALife(t *testing.T) {
	t.Parallel()
	page := readRedisPage(t)
	concurrency := limits.Limit{Name: "flight", Algorithm: throttle.Concurrency, Concurrency: 1, Per: []string{"tenant"}}
	metered := limits.Limit{Name: "tokens", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(10), Burst: 5, Unit: "token"}
	adaptive := perTenant(1000)
	adaptive.Adaptive, adaptive.Burst = true, 10
	r := startRig(t, 1, limitsOf(adaptive, sharedBy(1000), concurrency, metered), nil)
	client := r.server.Client()
	ann := operate.Operator{Actor: "ann", Reason: "to see"}

	// The first run of a job ends as its tenant's name says.
	begun, goOn := make(chan struct{}, 2), make(chan struct{})
	r.answer = func(ctx context.Context, job Running) error {
		if job.Attempt > 1 {
			return nil
		}
		switch job.Tenant {
		case "slow":
			begun <- struct{}{}
			select {
			case <-goOn:
			case <-ctx.Done():
				return ctx.Err()
			}
		case "busy":
			return tooMany{time.Hour, false}
		case "again":
			return errors.New("try again")
		case "broken":
			return permanent{}
		case "counts":
			return SetActual(ctx, map[string]int64{"token": 3})
		}
		return nil
	}
	Handle(r.worker, "webhook", func(context.Context, json.RawMessage) error {
		return holding{who: "endpoint", length: time.Hour, unreachable: true}
	})

	seenKeys, seenFields := map[string]bool{}, map[string]bool{}
	look := func() {
		t.Helper()
		for _, prefix := range []string{"headgate:{", "asynq:{"} {
			for _, full := range redistest.Keys(t, client, prefix+r.queue+"}:*") {
				name := strings.TrimPrefix(full, prefix+r.queue+"}:")
				list := page.keys
				if prefix == "asynq:{" {
					list = page.asynqs
				}
				if !described(name, list) {
					t.Errorf("docs/redis.md does not describe the key %s", full)
				}
				part, _, _ := strings.Cut(name, ":")
				seenKeys[part] = true
				if prefix != "asynq:{" || !strings.HasPrefix(name, "t:") {
					continue
				}
				for field := range client.HGetAll(t.Context(), full).Val() {
					seenFields[field] = true
					if !slices.Contains(page.fields, field) {
						t.Errorf("docs/redis.md does not describe the field %s of a task", field)
					}
				}
			}
		}
	}

	// Waiting jobs.
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	of := func(tenant string, edit func(*Job)) string {
		return r.add(t, func(job *Job) {
			job.Tenant = tenant
			if edit != nil {
				edit(job)
			}
		})
	}
	_, err := operate.PauseJobs(t.Context(), client, r.queue, inspect.Scope{Tenant: "paused"}, time.Now().Add(time.Hour), ann)
	must(err)
	must(operate.SetOverride(t.Context(), client, r.queue, "slow", "tenant", operate.Override{Change: limits.Change{Rate: new(throttle.PerSecond(500))}, Reason: "to see", Actor: "ann"}))
	of("paused", func(job *Job) {
		job.Key, job.KeyUntil, job.Deadline, job.Priority = "k", Ended, time.Now().Add(time.Hour), High
		job.Cost, job.Costs = 2, map[string]int64{"token": 5}
		job.OnSuccess = &Job{Kind: "call", Queue: r.queue, Payload: json.RawMessage(`{}`)}
	})
	of("later", func(job *Job) { job.In = time.Hour })
	of("strange", func(job *Job) { job.Kind = "strange" })
	r.webhooks(t, "paused", "there.example", 1)
	look()

	// A running job, and jobs that wait for its permit.
	of("slow", nil)
	of("slow", nil)
	r.run(t)
	<-begun
	exists := func(name string) bool { return client.Exists(t.Context(), store.Key(r.queue, name)).Val() == 1 }
	for rounds := 1; !exists("unserved") || !exists("blocked:flight:slow"); rounds++ {
		r.seen.wait(t, "round", rounds)
	}
	look()
	close(goOn)

	// Failures.
	for _, tenant := range []string{"busy", "again", "broken", "counts"} {
		of(tenant, func(job *Job) { job.Costs = map[string]int64{"token": 5} })
	}
	r.webhooks(t, "hooks", "away.example", 1)
	for outcome, n := range map[lifecycle.Outcome]int{lifecycle.Archived: 1, lifecycle.Retried: 2, lifecycle.Throttled: 1, lifecycle.Done: 3} {
		r.seen.wait(t, string(outcome), n)
	}
	a, err := Job{Kind: "call", Queue: r.queue, Tenant: "paused", Payload: 1}.accept(r.queue, time.Now())
	must(err)
	_, err = store.PeriodicFireScript.Run(t.Context(), client, store.ScriptKeys(r.queue), append([]any{r.queue}, a.append([]any{1, "", "hourly", time.Now().Unix(), "queue"})...)...)
	must(err)
	look()
	_, err = operate.ResumeJobs(t.Context(), client, r.queue, inspect.Scope{Tenant: "paused"}, ann)
	must(err)
	r.seen.wait(t, string(lifecycle.Done), 6) // with the periodic job and the follow-up
	look()

	want := []string{
		"adapt", "audit", "b", "blocked", "endpoints", "events", "handed", "lead", "limits",
		"overrides", "pause_changes", "pause_ends", "pauses", "permits", "skips", "tenants", "totals", "unique", "unserved", "vtime",
	}
	for _, name := range want {
		if !seenKeys[name] {
			t.Errorf("the life has no key %s; it has %v", name, slices.Sorted(maps.Keys(seenKeys)))
		}
	}
	for _, name := range []string{"hg_slot", "hg_owner", "hg_permits", "hg_marks", "hg_cost", "hg_costs", "hg_deadline", "hg_unique", "hg_next", "hg_body", "hg_error", "hg_outcome", "hg_log", "hg_released", "hg_first"} {
		if !seenFields[name] {
			t.Errorf("the life has no field %s; it has %v", name, slices.Sorted(maps.Keys(seenFields)))
		}
	}
}
