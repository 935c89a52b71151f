package api

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/operate"
)

const (
	// refusedKey has what was refused for lack of rights. It is a list of its own,
	// so that nobody can wash changes out of the audit with requests that fail.
	refusedKey   = "headgate:api:refused"
	maxRefused   = 1000
	maxAtOnce    = 20 // written a second; of the others only the number is
	refusedWrite = time.Second
)

// refusals notes who was refused what, some a second at most.
type refusals struct {
	redis  redis.UniversalClient
	logger *slog.Logger
	notes  chan operate.AuditEntry
	more   atomic.Int64 // that were not noted
}

func newRefusals(client redis.UniversalClient, logger *slog.Logger) *refusals {
	return &refusals{redis: client, logger: logger, notes: make(chan operate.AuditEntry, maxAtOnce)}
}

// add notes a refusal; it never waits.
func (f *refusals) add(r *http.Request, c caller, p *problem) {
	where := strings.TrimPrefix(c.pattern, r.Method+" ")
	if where == "" {
		where = "no such path"
	}
	entry := operate.AuditEntry{
		At: time.Now().UTC(), Actor: c.actor(), Action: "refused", Queue: clip(r.PathValue("q")), Tenant: clip(r.PathValue("t")),
		Reason: p.refusal + ": " + r.Method + " " + where + " from " + clip(r.RemoteAddr),
	}
	select {
	case f.notes <- entry:
	default:
		f.more.Add(1)
	}
}

func (f *refusals) run(ctx context.Context) {
	tick := time.NewTicker(refusedWrite)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			f.write(context.WithoutCancel(ctx))
			return
		case <-tick.C:
			f.write(ctx)
		}
	}
}

// write writes what was noted since the last time.
func (f *refusals) write(ctx context.Context) {
	var texts []any
	for range maxAtOnce {
		select {
		case entry := <-f.notes:
			text, err := json.Marshal(entry)
			if err != nil { // of texts and a time
				panic(err)
			}
			texts = append(texts, text)
			f.logger.Warn("a request was refused", "actor", entry.Actor, "reason", entry.Reason)
			continue
		default:
		}
		break
	}
	if more := f.more.Swap(0); more > 0 {
		entry := operate.AuditEntry{At: time.Now().UTC(), Actor: nobody, Action: "refused", Reason: "more of the like", Count: more}
		text, err := json.Marshal(entry)
		if err != nil {
			panic(err)
		}
		texts = append(texts, text)
	}
	if len(texts) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, refusedWrite)
	defer cancel()
	pipe := f.redis.TxPipeline()
	pipe.LPush(ctx, refusedKey, texts...)
	pipe.LTrim(ctx, refusedKey, 0, maxRefused-1)
	if _, err := pipe.Exec(ctx); err != nil {
		f.logger.Warn("what was refused could not be noted", "error", err)
	}
}

// list reads the newest n.
func (f *refusals) list(ctx context.Context, n int) ([]operate.AuditEntry, error) {
	texts, err := f.redis.LRange(ctx, refusedKey, 0, int64(n)-1).Result()
	if err != nil {
		return nil, err
	}
	entries := make([]operate.AuditEntry, len(texts))
	for i, text := range texts {
		if err := json.Unmarshal([]byte(text), &entries[i]); err != nil {
			return nil, err
		}
	}
	return entries, nil
}
