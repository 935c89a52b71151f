package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/validation"
)

// AuditEntry is one change by an operator. It identifies jobs by a filter or an id, and
// never contains their payloads.
type AuditEntry struct {
	At     time.Time       `json:"at"`
	Actor  string          `json:"actor"`
	Action string          `json:"action"` // a [Verb], pause, resume, override, clear, publish, unregister or keys; or see [Record]
	Queue  string          `json:"queue"`
	Tenant string          `json:"tenant,omitempty"`
	Kind   string          `json:"kind,omitempty"`
	State  lifecycle.State `json:"state,omitempty"`
	ID     string          `json:"id,omitempty"`
	Limit  string          `json:"limit,omitempty"`

	// Endpoint is the host:port whose hold was ended.
	Endpoint string `json:"endpoint,omitempty"`

	// Contains is the Reason of the verb's [Filter].
	Contains string `json:"contains,omitempty"`

	Group *inspect.FailureKey `json:"group,omitempty"` // of the verb's Filter

	Reason string    `json:"reason,omitempty"`
	Until  time.Time `json:"until,omitzero"` // of a pause or an override; zero: until it is removed

	// Before and After are the limits before and after the change, by name, or what API keys
	// may do. What did not change is left out.
	Before map[string]string `json:"before,omitempty"`
	After  map[string]string `json:"after,omitempty"`

	// Unsure reports that Redis gave no answer, so that the change, or a part of it, may have been made or not. Only
	// [Operator.Log] gets such entries.
	Unsure bool `json:"unsure,omitempty"`

	// Count is how many jobs a verb changed. It is the last field, so that a script can
	// write it.
	Count int64 `json:"count"`
}

// MaxAudit is the maximum number of entries that one call of [Audit] returns.
const MaxAudit = 10_000

// maxShare is how many entries are kept of each API key, of the command line, and of programs
// that publish limits, in each queue.
const maxShare = 2000

// keyID is the form of the ids of API keys, and of the actor that stands for all callers without one.
var keyID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// share returns whose entries an actor's are kept with.
func share(actor string) string {
	switch {
	case strings.HasPrefix(actor, "cli:"):
		return "cli"
	case keyID.MatchString(actor):
		return "key:" + actor
	}
	return "program"
}

// LogValue returns the entry's fields that are set, for package log/slog.
func (e AuditEntry) LogValue() slog.Value {
	var fields map[string]any
	if err := json.Unmarshal([]byte(e.text()), &fields); err != nil { // it was encoded just now
		panic(err)
	}
	attrs := []slog.Attr{slog.String("action", e.Action), slog.String("actor", e.Actor)}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != "action" && name != "actor" && !(name == "count" && e.Count == 0) {
			attrs = append(attrs, slog.Any(name, fields[name]))
		}
	}
	return slog.GroupValue(attrs...)
}

// text returns the entry in its stored form.
func (e AuditEntry) text() string {
	e.At = e.At.UTC()
	text, err := json.Marshal(e)
	if err != nil { // a year beyond 9999, which is checked before
		panic(err)
	}
	return string(text)
}

// open returns the stored form without the count and what follows it.
func (e AuditEntry) open() string {
	e.Count = 0
	return strings.TrimSuffix(e.text(), "0}")
}

// auditKey is the key of the set of shares of a queue's audit, each of which is a list; of changes
// that are about no queue for "".
func auditKey(queue string) string {
	if queue == "" {
		return "headgate:audit"
	}
	return store.Key(queue, "audit")
}

// shareKey is the key of the list of one share.
func shareKey(queue, share string) string {
	if queue == "" {
		return "headgate:audit:" + share
	}
	return store.Key(queue, "audit:"+share)
}

// Audit returns the newest n changes that operators made to a queue, newest first, or with the
// queue "" those that are about no queue, such as of API keys. n is at most [MaxAudit]. Of each API
// key, of the command line and of programs the newest 2,000 are kept, so that nobody pushes out what
// others did. Errors: [validation.Error] for another n.
func Audit(ctx context.Context, client redis.UniversalClient, queue string, n int) ([]AuditEntry, error) {
	if n < 1 || n > MaxAudit {
		return nil, validation.Field("n", fmt.Sprintf("%d must be 1 to %d", n, MaxAudit))
	}
	fail := func(err error) ([]AuditEntry, error) {
		return nil, fmt.Errorf("read the audit of queue %q: %w", queue, err)
	}
	lists, err := auditLists(ctx, client, queue)
	if err != nil {
		return fail(err)
	}
	pipe := client.Pipeline()
	replies := make([]*redis.StringSliceCmd, len(lists))
	for i, list := range lists {
		replies[i] = pipe.LRange(ctx, list, 0, int64(n)-1)
	}
	if err := store.Execute(ctx, pipe); err != nil {
		return fail(err)
	}
	entries, known := []AuditEntry{}, map[string]int{}
	for _, reply := range replies {
		for _, text := range reply.Val() {
			var e AuditEntry
			if err := json.Unmarshal([]byte(text), &e); err != nil {
				return fail(err)
			}
			// An act in several partitions has the same entry in each, but for the count at its end.
			end := strings.LastIndexByte(text, ':')
			if end < 0 {
				return fail(fmt.Errorf("%q is no entry", text))
			}
			act := text[:end]
			if i, there := known[act]; there {
				entries[i].Count += e.Count
				continue
			}
			known[act] = len(entries)
			entries = append(entries, e)
		}
	}
	slices.SortStableFunc(entries, func(a, b AuditEntry) int { return b.At.Compare(a.At) })
	// An act that one partition has forgotten would be shown with the count of the others.
	kept := map[string]int{}
	entries = slices.DeleteFunc(entries, func(e AuditEntry) bool {
		of := share(e.Actor)
		kept[of]++
		return kept[of] > maxShare
	})
	return entries[:min(n, len(entries))], nil
}

// auditLists returns the keys of the lists of a queue's audit, in all its partitions. Those that it had when
// it was taken out of Redis are members of the first one's set, beside the shares.
func auditLists(ctx context.Context, client redis.UniversalClient, queue string) (lists []string, err error) {
	homes := []string{queue}
	if queue != "" {
		l, err := store.ReadLayout(ctx, client, queue)
		if err != nil {
			return nil, err
		}
		homes = l.Names()
	}
	for asked := 0; asked < len(homes); {
		some := homes[asked:]
		asked = len(homes)
		pipe, sets := client.Pipeline(), make([]*redis.StringSliceCmd, len(some))
		for i, home := range some {
			sets[i] = pipe.SMembers(ctx, auditKey(home))
		}
		if err := store.Execute(ctx, pipe); err != nil {
			return nil, err
		}
		for i, home := range some {
			for _, share := range sets[i].Val() {
				if partition.QueueOf(share) == share {
					lists = append(lists, shareKey(home, share))
				} else if !slices.Contains(homes, share) {
					homes = append(homes, share)
				}
			}
		}
	}
	return lists, nil
}

// keepAudit names partitions of a queue that is taken out of Redis in the set of its audit.
func keepAudit(ctx context.Context, client redis.UniversalClient, queue string, homes []string) error {
	others := slices.DeleteFunc(slices.Clone(homes), func(home string) bool { return home == queue })
	if len(others) == 0 {
		return nil
	}
	return client.SAdd(ctx, auditKey(queue), others).Err()
}

// Record adds an entry to the audit of its queue, for a change that this package does not
// make itself. The entry's actor and reason are those of by; an empty Actor stands for this
// program. The entry is logged whatever Redis says, because the change is made.
func Record(ctx context.Context, client redis.UniversalClient, e AuditEntry, by Operator) error {
	by.Actor = cmp.Or(by.Actor, program())
	if err := by.Check(); err != nil {
		return err
	}
	e.At, e.Actor, e.Reason = time.Now(), by.Actor, by.Reason
	now, err := store.Time(ctx, client, store.Key(e.Queue, "audit"))
	if err == nil {
		e.At = now
		// No transaction: without a queue, the two keys are in two slots of a Cluster. A share without
		// entries does no harm.
		own := share(e.Actor)
		if err = client.SAdd(ctx, auditKey(e.Queue), own).Err(); err == nil {
			err = store.Patient(ctx, func() error {
				return store.Transaction(ctx, client, func(p redis.Pipeliner) error {
					pushTo(ctx, p, e.Queue, own, e)
					return nil
				})
			})
		}
	}
	by.log(e)
	if err != nil {
		return fmt.Errorf("%s: the change is made, and not in the audit of queue %q: %w", e.Action, e.Queue, err)
	}
	return nil
}

// pushAudit adds an entry to the transaction of the change that it describes, in a partition.
func pushAudit(ctx context.Context, p redis.Pipeliner, home string, e AuditEntry) {
	own := share(e.Actor)
	p.SAdd(ctx, auditKey(home), own)
	pushTo(ctx, p, home, own, e)
}

// pushTo adds an entry to the list of its share.
func pushTo(ctx context.Context, p redis.Pipeliner, home, share string, e AuditEntry) {
	list := shareKey(home, share)
	p.LPush(ctx, list, e.text())
	p.LTrim(ctx, list, 0, maxShare-1)
}
