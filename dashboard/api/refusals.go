package api

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue/operate"
)

const (
	// refusedKey lists requests that were refused for lack of permission. It is separate from the
	// audit log, so that failing requests cannot push changes out of it.
	refusedKey   = "headgate:api:refused"
	maxRefused   = 1000
	maxAtOnce    = 20 // written per second; further ones are only counted
	refusedWrite = time.Second
)

// refusals records refused requests, at most maxAtOnce per second.
type refusals struct {
	redis  redis.UniversalClient
	logger *slog.Logger
	notes  chan operate.AuditEntry
	more   atomic.Int64 // refusals only counted
}

func newRefusals(client redis.UniversalClient, logger *slog.Logger) *refusals {
	return &refusals{redis: client, logger: logger, notes: make(chan operate.AuditEntry, maxAtOnce)}
}

// add records a refusal without blocking.
func (f *refusals) add(r *http.Request, c caller, p *problem) {
	where := cmp.Or(strings.TrimPrefix(c.pattern, r.Method+" "), "no such path")
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
	for wait.For(ctx, refusedWrite) == nil {
		f.write(ctx)
	}
	f.write(context.WithoutCancel(ctx))
}

// write writes the refusals recorded since the last call.
func (f *refusals) write(ctx context.Context) {
	var texts []any
	for range maxAtOnce {
		select {
		case entry := <-f.notes:
			texts = append(texts, mustJSON(entry))
			f.logger.Warn("a request was refused", "actor", entry.Actor, "reason", entry.Reason)
			continue
		default:
		}
		break
	}
	if more := f.more.Swap(0); more > 0 {
		entry := operate.AuditEntry{At: time.Now().UTC(), Actor: nobody, Action: "refused", Reason: "further refused requests", Count: more}
		texts = append(texts, mustJSON(entry))
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
		f.logger.Warn("refused requests could not be recorded", "error", err)
	}
}

// list returns the refusals of a queue, or all of them for "".
func (f *refusals) list(ctx context.Context, queue string) ([]operate.AuditEntry, error) {
	texts, err := f.redis.LRange(ctx, refusedKey, 0, -1).Result()
	if err != nil {
		return nil, err
	}
	var entries []operate.AuditEntry
	for _, text := range texts {
		var e operate.AuditEntry
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			return nil, err
		}
		if queue == "" || e.Queue == queue {
			entries = append(entries, e)
		}
	}
	return entries, nil
}
