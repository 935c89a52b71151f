// Package endpoints remembers which receivers of webhooks answered 410, so that workers stop
// calling them.
//
// The list is in Redis and shared by all workers: one 410 holds back every job of that tenant
// to that URL, and the list survives restarts. Workers read it every few seconds and decide
// from their copy, so a call needs no extra round trip. URLs are often secrets of the
// receiver, so only a hash of them is stored.
package endpoints

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue/operate"
)

const (
	// Hold is how long an endpoint is not called. Then one job tries it. If no outcome is reported, another job does after Try.
	Hold = 24 * time.Hour
	Try  = time.Minute

	// most is the maximum number of endpoints, so that receivers cannot fill Redis.
	// Endpoints beyond it are not remembered: each job calls them and gets its own 410.
	most = 10_000

	hash    = "headgate:endpoints"
	tryKey  = "headgate:endpoints:try:" // and an id
	refresh = 5 * time.Second
	piece   = 500 // fields in one round trip
)

// Endpoint is a URL of a tenant's webhooks that answered 410.
type Endpoint struct {
	ID     string    `json:"id"`    // hash of the tenant and the URL
	Queue  string    `json:"queue"` // of the job that was answered
	Tenant string    `json:"tenant"`
	Host   string    `json:"host"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"` // when it is tried again

	// Enabled is true from when an operator enables the endpoint until all of its jobs are woken.
	Enabled bool `json:"enabled,omitempty"`
}

// ID returns the id of a tenant's endpoint. It ignores the fragment of the URL, which is
// never sent.
func ID(tenant, url string) string {
	url, _, _ = strings.Cut(url, "#")
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", tenant, url))
	return hex.EncodeToString(sum[:12])
}

// Store is a worker's copy of the list. It is safe for concurrent use.
type Store struct {
	client redis.UniversalClient
	logger *slog.Logger

	mu     sync.Mutex
	gone   map[string]Endpoint
	unsaid map[string]Endpoint // not written to Redis yet
}

// New returns an empty copy. [Store.Run] fills it.
func New(client redis.UniversalClient, logger *slog.Logger) *Store {
	return &Store{client: client, logger: logger, gone: map[string]Endpoint{}, unsaid: map[string]Endpoint{}}
}

// Held returns a tenant's endpoint that is gone, and the moment at which a call of it may be asked for again; zero if it
// may be called now. It asks Redis before it says so: the endpoint may have been enabled since the copy was made. If the
// time is over, it allows one call, whose outcome must be reported with [Store.Back] or [Store.Gone].
func (s *Store) Held(ctx context.Context, tenant, url string) (gone *Endpoint, again time.Time) {
	s.mu.Lock()
	e, ok := s.gone[ID(tenant, url)]
	_, unsaid := s.unsaid[e.ID]
	s.mu.Unlock()
	if !ok {
		return nil, time.Time{}
	}
	now := time.Now()
	listed, err := get(ctx, s.client, e.ID)
	switch {
	case err == nil && (listed == nil && !unsaid || listed != nil && listed.Enabled):
		s.forget(e.ID)
		return nil, time.Time{}
	case listed != nil:
		e = *listed
	}
	if now.Before(e.Until) {
		return &e, e.Until
	}
	if mine, err := s.client.SetNX(ctx, tryKey+e.ID, "1", Try).Result(); err != nil || !mine {
		return &e, now.Add(Try)
	}
	return &e, time.Time{}
}

// Back reports that an endpoint answers again. All jobs may call it then.
func (s *Store) Back(ctx context.Context, e Endpoint) {
	s.forget(e.ID)
	if err := s.client.HDel(ctx, hash, e.ID).Err(); err != nil {
		s.logger.Warn("that an endpoint is back is not in Redis; it is tried again in a minute", "endpoint", e.ID, "error", err)
	}
}

func (s *Store) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.gone, id)
	delete(s.unsaid, id)
}

// get returns an endpoint of the list; nil if it is not there, or cannot be read.
func get(ctx context.Context, client redis.UniversalClient, id string) (*Endpoint, error) {
	text, err := client.HGet(ctx, hash, id).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	e := &Endpoint{}
	if json.Unmarshal([]byte(text), e) != nil || e.ID != id {
		return nil, nil
	}
	return e, nil
}

// Gone remembers an endpoint that answered 410, in this worker at once and in all workers
// within seconds. It returns false if the list is full.
func (s *Store) Gone(ctx context.Context, queue, tenant, url, host string) bool {
	now := time.Now().UTC()
	e := Endpoint{ID: ID(tenant, url), Queue: queue, Tenant: tenant, Host: host, Since: now, Until: now.Add(Hold)}
	s.mu.Lock()
	if _, known := s.gone[e.ID]; !known && len(s.gone) >= most {
		s.mu.Unlock()
		return false
	}
	s.gone[e.ID], s.unsaid[e.ID] = e, e
	s.mu.Unlock()
	s.logger.Warn("an endpoint is gone and is left alone", "tenant", tenant, "host", host, "endpoint", e.ID, "until", e.Until)
	if err := s.tell(ctx); err != nil && ctx.Err() == nil {
		s.logger.Warn("what endpoints are gone is not in Redis yet", "error", err)
	}
	return true
}

// tell writes the endpoints that are not in Redis yet.
func (s *Store) tell(ctx context.Context) error {
	s.mu.Lock()
	unsaid := slices.Collect(maps.Values(s.unsaid))
	s.mu.Unlock()
	for _, e := range unsaid {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		pipe := s.client.TxPipeline()
		pipe.HSet(ctx, hash, e.ID, text)
		pipe.Expire(ctx, hash, 2*Hold)
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
		s.mu.Lock()
		delete(s.unsaid, e.ID)
		s.mu.Unlock()
	}
	return nil
}

// Run updates the copy from Redis every 5 s until ctx is done. While Redis does not answer,
// the copy stays as it is. The error is always nil.
func (s *Store) Run(ctx context.Context) error {
	for {
		if err := s.read(ctx); err != nil && ctx.Err() == nil {
			s.logger.Warn("which endpoints are gone cannot be read", "error", err)
		}
		if wait.For(ctx, refresh) != nil {
			return nil
		}
	}
}

func (s *Store) read(ctx context.Context) error {
	if err := s.tell(ctx); err != nil {
		return err
	}
	began := time.Now()
	list, err := List(ctx, s.client)
	if err != nil {
		return err
	}
	gone, now := map[string]Endpoint{}, time.Now()
	for _, e := range list {
		if now.Before(e.Until.Add(Hold)) { // else no job has called it for a day
			gone[e.ID] = e
			continue
		}
		if err := s.client.HDel(ctx, hash, e.ID).Err(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, e := range s.gone {
		if _, unsaid := s.unsaid[id]; unsaid || e.Since.After(began) {
			gone[id] = e // added while the list was read
		}
	}
	s.gone = gone
	return nil
}

// List returns the endpoints that are gone, sorted by tenant and host.
func List(ctx context.Context, client redis.UniversalClient) ([]Endpoint, error) {
	list := []Endpoint{}
	known := map[string]bool{} // HSCAN may return a field twice
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		fields, next, err := client.HScan(ctx, hash, cursor, "", piece).Result()
		if err != nil {
			return nil, fmt.Errorf("list the endpoints that are gone: %w", err)
		}
		for i := 0; i+1 < len(fields); i += 2 {
			var e Endpoint
			if json.Unmarshal([]byte(fields[i+1]), &e) == nil && e.ID == fields[i] && !known[e.ID] {
				known[e.ID] = true
				list = append(list, e)
			}
		}
		cursor = next
	}
	slices.SortFunc(list, func(a, b Endpoint) int {
		return strings.Compare(a.Tenant+"\x00"+a.Host+"\x00"+a.ID, b.Tenant+"\x00"+b.Host+"\x00"+b.ID)
	})
	return list, nil
}

// Enable lets all workers call an endpoint again, wakes the jobs that wait for it, and returns
// how many. ok is false if the endpoint is not in the list. After an error, Enable can be
// called again: the endpoint stays in the list until its jobs are awake.
func Enable(ctx context.Context, client redis.UniversalClient, id string, by operate.Operator) (woken int64, ok bool, err error) {
	if err := by.Check(); err != nil {
		return 0, false, err
	}
	woken, ok, err = enable(ctx, client, id, by)
	if err != nil {
		err = fmt.Errorf("enable the endpoint %.40q: %w", id, err)
	}
	return woken, ok, err
}

func enable(ctx context.Context, client redis.UniversalClient, id string, by operate.Operator) (woken int64, ok bool, err error) {
	e, err := get(ctx, client, id)
	if err != nil || e == nil {
		return 0, false, err
	}
	if !e.Enabled {
		if err := operate.Record(ctx, client, operate.AuditEntry{Action: "enable", Queue: e.Queue, Tenant: e.Tenant, Endpoint: e.Host, ID: e.ID}, by); err != nil {
			return 0, false, err
		}
		e.Enabled = true
		text, err := json.Marshal(e)
		if err != nil {
			return 0, false, err
		}
		if err := client.HSet(ctx, hash, id, text).Err(); err != nil {
			return 0, false, err
		}
	}
	tally, err := operate.Apply(ctx, client, e.Queue, operate.Wake, operate.Filter{Tenant: e.Tenant, Reason: Remedy(e.ID)}, by, nil)
	if err != nil {
		return tally.Jobs, false, err
	}
	return tally.Jobs, true, client.HDel(ctx, hash, id).Err()
}

// Remedy returns the words in the error of each waiting job by which people, and Enable, know
// which endpoint it waits for.
func Remedy(id string) string { return "enable it with: enqueue endpoints enable " + id }
