package browsertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/throttle"
)

type control = map[string]func(args json.RawMessage) (any, error)

// asked makes a control out of a function of its arguments.
func asked[T any](do func(T) (any, error)) func(json.RawMessage) (any, error) {
	return func(args json.RawMessage) (any, error) {
		var into T
		if err := json.Unmarshal(args, &into); err != nil {
			return nil, err
		}
		return do(into)
	}
}

// lookedAt are the jobs whose pages are looked at in each theme.
var lookedAt = []string{"waiting", "paused", "completed", "scheduled", "retrying", "archived", "cancelled", "sending"}

func pick(all map[string]string, names ...string) map[string]string {
	some := map[string]string{}
	for _, name := range names {
		some[name] = all[name]
	}
	return some
}

// TestPages: every page can be read by anybody, in light and dark, wide and narrow,
// with a mouse and without, whatever tenants are called and jobs carry.
func TestPages(t *testing.T) {
	t.Parallel()
	s := newStage(t, limitsOf(append(slices.Clone(hostile), "large")...))
	p := s.worker()
	sample := s.stock()
	given := map[string]any{"queue": "webhook", "tenant": "acme", "jobs": pick(sample, lookedAt...), "large": sample["large"]}
	var strange []map[string]string
	for i, name := range hostile {
		strange = append(strange, map[string]string{"name": name, "job": sample[fmt.Sprintf("hostile %d", i)]})
	}
	given["hostile"] = strange
	for _, file := range []string{"pages", "keyboard", "hostile"} {
		t.Run(file, func(t *testing.T) {
			scenario(t, file+".mjs", run{base: p.page, given: given, control: control{"fault": s.fault()}})
		})
	}
}

// fault is told what scripts could not understand; "": they understand all.
func (s *stage) fault() func(json.RawMessage) (any, error) {
	const faults = "headgate:{webhook}:faults"
	return asked(func(name string) (any, error) {
		if err := s.rdb.Del(context.Background(), faults).Err(); err != nil || name == "" {
			return true, err
		}
		return true, s.rdb.HSet(context.Background(), faults, "lane "+name, fmt.Sprintf("%d a field is %s", time.Now().UnixMicro(), name)).Err()
	})
}

// TestActions: each change that the page offers does what it says, and is in Redis.
func TestActions(t *testing.T) {
	t.Parallel()
	s := newStage(t, limitsOf("many"))
	p := s.worker()
	sample := s.stock()
	s.enqueue(times(121, s.call("many", "/orders"))...) // one goes at once
	client, ctx := s.rdb, t.Context()
	// Their reason is the beginning of another one, "ordered twice".
	later := s.call("umbrella", "/orders")
	later.In = time.Hour
	for _, id := range s.enqueue(times(2, later)...) {
		if _, err := operate.Apply(ctx, client, "webhook", operate.Cancel, operate.Filter{ID: id}, operate.Operator{Actor: "ben", Reason: "ordered"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	inspector := inspect.New(client)
	until.Done(t, "one of many went", func() bool { return s.waiting(t, inspector, "many") == 120 })

	type which struct{ Tenant, Limit, ID string }
	scenario(t, "actions.mjs", run{
		base: p.page,
		given: map[string]any{
			"queue": "webhook", "names": map[string]string{"waiting": "acme", "other": "hooli", "many": "many"},
			"jobs": map[string]string{
				"waiting": sample["waiting"], "refusable": sample["refusable"], "scheduled": sample["scheduled"],
				"archived": sample["exhausted"], "sending": sample["sending"], "cancelled": sample["cancelled"],
			},
			"failed": map[string]int{"notFound": 12, "refused": 3},
		},
		control: control{
			"pauses": asked(func(w which) (any, error) {
				all, err := inspect.Pauses(ctx, client, "webhook")
				found := []inspect.Pause{}
				for _, pause := range all {
					if pause.Tenant == w.Tenant && pause.Kind == "" {
						found = append(found, pause)
					}
				}
				return found, err
			}),
			"limit": asked(func(w which) (any, error) {
				all, err := inspect.LimitsInForce(ctx, client, "webhook", w.Tenant)
				if err != nil {
					return nil, err
				}
				i := slices.IndexFunc(all, func(f limits.Effective) bool { return f.Name == w.Limit })
				if i < 0 {
					return nil, errors.New("no such limit")
				}
				return all[i], nil
			}),
			"in-flight is": asked(func(limit string) (any, error) {
				s.write("limits.yaml", limitsWith(limit, "many"))
				return true, nil
			}),
			"job": asked(func(w which) (any, error) {
				e, err := inspector.Explain(ctx, "webhook", w.ID)
				if errors.Is(err, lifecycle.ErrNoJob) {
					return nil, nil
				}
				return e, err
			}),
			"waiting": asked(func(w which) (any, error) {
				outlook, err := inspector.Outlook(ctx, "webhook", w.Tenant)
				return outlook.Waiting, err
			}),
			"let calls through": func(json.RawMessage) (any, error) { s.letThrough.Store(true); return true, nil },
		},
	})
}

func (s *stage) waiting(t testing.TB, inspector *inspect.Inspector, tenant string) int64 {
	t.Helper()
	outlook, err := inspector.Outlook(t.Context(), "webhook", tenant)
	if err != nil {
		t.Fatal(err)
	}
	return outlook.Waiting
}

// changes are what operators did since the jobs were stocked.
func (s *stage) changes(t testing.TB) func(json.RawMessage) (any, error) {
	before, err := operate.Audit(t.Context(), s.rdb, "webhook", 1000)
	if err != nil {
		t.Fatal(err)
	}
	return func(json.RawMessage) (any, error) {
		after, err := operate.Audit(t.Context(), s.rdb, "webhook", 1000)
		return after[:len(after)-len(before)], err
	}
}

// TestReadOnly: a server, or a key, that is for reading offers no change and takes
// none.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	s := newStage(t, limitsOf())
	key, hash := api.NewKey()
	keys := s.write("keys.yaml", fmt.Sprintf("keys:\n  - {id: viewer, hash: %q, scopes: [read]}\n", hash))
	forbidden := s.worker("HEADGATE_READ_ONLY=true")
	sample := s.stock()
	keyed := s.worker("HEADGATE_API_KEYS_FILE=" + keys)
	for name, of := range map[string]struct {
		*process
		key string
	}{"server": {forbidden, ""}, "key": {keyed, key}} {
		t.Run(name, func(t *testing.T) {
			scenario(t, "readonly.mjs", run{
				base: of.page,
				given: map[string]any{
					"queue": "webhook", "names": map[string]string{"waiting": "acme"}, "key": of.key,
					"jobs": pick(sample, "waiting", "archived", "scheduled"),
				},
				control: control{"changes": s.changes(t)},
			})
		})
	}
}

// TestKeys: a server with keys shows nothing before it has seen one.
func TestKeys(t *testing.T) {
	t.Parallel()
	s := newStage(t, limitsOf())
	key, hash := api.NewKey()
	_, other := api.NewKey()
	shop, ofShop := api.NewKey()
	producer, ofProducer := api.NewKey()
	keys := func(hash api.Hash) string {
		return s.write("keys.yaml", fmt.Sprintf("keys:\n  - {id: anna, hash: %q, scopes: [admin]}\n  - {id: shop, hash: %q, scopes: [read], tenants: [acme]}\n  - {id: producer, hash: %q, scopes: [enqueue]}\n", hash, ofShop, ofProducer))
	}
	p := s.worker("HEADGATE_API_KEYS_FILE=" + keys(hash))
	s.enqueue(times(3, s.call("acme", "/orders"))...)
	scenario(t, "keys.mjs", run{
		base:    p.page,
		given:   map[string]any{"queue": "webhook", "names": map[string]string{"waiting": "acme"}, "key": key, "shop": shop, "producer": producer},
		control: control{"revoke the key": func(json.RawMessage) (any, error) { return keys(other), nil }},
	})
}

// TestReconnect: what the page depends on goes away and comes back.
func TestReconnect(t *testing.T) {
	t.Parallel()
	s := newStage(t, limitsOf(), "--appendonly", "yes", "--appendfsync", "always")
	p := s.worker()
	s.enqueue(times(3, s.call("acme", "/orders"))...)
	scenario(t, "reconnect.mjs", run{
		base:  p.page,
		given: map[string]any{"queue": "webhook", "tenant": "acme"},
		control: control{
			"kill the worker": func(json.RawMessage) (any, error) { p.end(syscall.SIGKILL); return true, nil },
			"start the worker": func(json.RawMessage) (any, error) {
				p = s.workerAt(strings.TrimPrefix(p.page, "http://"))
				return true, nil
			},
			"freeze the worker": func(json.RawMessage) (any, error) { return true, p.cmd.Process.Signal(syscall.SIGSTOP) },
			"thaw the worker":   func(json.RawMessage) (any, error) { return true, p.cmd.Process.Signal(syscall.SIGCONT) },
			"pause Redis":       func(json.RawMessage) (any, error) { s.redis.Pause(); return true, nil },
			"resume Redis":      func(json.RawMessage) (any, error) { s.redis.Resume(); return true, nil },

			"kill Redis":  func(json.RawMessage) (any, error) { s.redis.Kill(); return true, nil },
			"start Redis": func(json.RawMessage) (any, error) { s.redis.Restart(); return true, nil },
			"enqueue": asked(func(of struct{ Tenant string }) (any, error) {
				s.enqueue(s.call(of.Tenant, "/orders"))
				return true, nil
			}),
		},
	})
}

// many is what the page has to be able to show.
const many = 100_000

// TestManyTenants: with 100,000 tenants the page stays as small as with 50.
func TestManyTenants(t *testing.T) {
	t.Parallel()
	s := newStage(t, manyLimits)
	p := s.worker()
	s.tenants(many)
	scenario(t, "many.mjs", run{base: p.page, given: map[string]any{"queue": "webhook", "tenants": many}})
}

// manyLimits let next to nothing go.
const manyLimits = `
queues:
  webhook:
    kinds: [webhook]
    limits:
      - {name: account, algorithm: leaky_bucket, rate: 1/min}
      - {name: tenant, per: [tenant], algorithm: token_bucket, rate: 1/min, burst: 1}
`

// tenants have a job each.
func (s *stage) tenants(n int) {
	s.t.Helper()
	job := s.call("", "/orders")
	const batch = 1000
	for first := 0; first < n; first += batch {
		jobs := times(min(batch, n-first), job)
		for i := range jobs {
			jobs[i].Tenant = fmt.Sprintf("tenant-%06d", first+i)
		}
		s.enqueue(jobs...)
	}
}

// TestDev: what `worker dev` shows, and that the pictures of the manual show the same.
func TestDev(t *testing.T) {
	t.Parallel()
	s, p := newDev(t)
	// The demo's own jobs all succeed: these are what there is to see of failures.
	jobs := append(times(12, s.call("acme", "/403/orders")), times(3, s.call("globex", "/422/orders"))...)
	again := s.call("globex", "/500/orders")
	again.MaxAttempts = 3
	ids := s.enqueue(append(jobs, again)...)
	inspector := inspect.New(s.rdb)
	until.Done(t, "all of them have failed", func() bool {
		o, err := inspector.Overview(t.Context(), "webhook")
		return err == nil && o.Archived == int64(len(ids))
	})
	if err := operate.SetOverride(t.Context(), s.rdb, "webhook", "globex", "tenant", operate.Override{
		Change: limits.Change{Rate: new(throttle.PerSecond(20)), Burst: new(int64(1))}, Until: time.Now().Add(6 * time.Hour), Actor: "anna", Reason: "their endpoint is slow today",
	}); err != nil {
		t.Fatal(err)
	}
	folder, err := filepath.Abs("../../../docs/img")
	if err != nil {
		t.Fatal(err)
	}
	update := os.Getenv("UPDATE_IMAGES") == "1"
	if !update {
		// Node compares these; Go reads them so that its test cache knows of them.
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				_, err = os.ReadFile(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	scenario(t, "dev.mjs", run{base: p.page, given: map[string]any{
		"queue": "webhook", "tenant": "acme", "job": ids[len(ids)-1], "images": folder, "update": update,
	}})
}
