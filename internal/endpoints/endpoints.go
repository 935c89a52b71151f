// Package endpoints remembers which receivers of webhooks answered 410, so that
// they are left alone.
//
// The memory is in Redis, for all workers: one 410 holds back every job of that
// tenant to that URL, and a restart forgets none of it. Workers read it every few
// seconds and decide from their copy, so a call costs no round trip more. URLs are
// not stored, for they are often the receiver's secret: what is, is a hash.
package endpoints

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// Hold is for how long an endpoint is left alone. Then one job tries it.
	Hold = 24 * time.Hour

	// most bounds what strangers can make Redis hold. Endpoints for which there is
	// no room are not remembered: each job to them finds out by itself.
	most = 10_000

	hash    = "headgate:endpoints"
	refresh = 5 * time.Second
	piece   = 500 // fields in one round trip
)

// Endpoint is a URL that a tenant's webhooks went to and that is gone.
type Endpoint struct {
	ID     string    `json:"id"` // stands for the tenant and the URL
	Tenant string    `json:"tenant"`
	Host   string    `json:"host"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"` // when it is tried again
}

// ID is that of a tenant's endpoint. A fragment is never sent, so it is left out.
func ID(tenant, url string) string {
	url, _, _ = strings.Cut(url, "#")
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", tenant, url))
	return hex.EncodeToString(sum[:12])
}

// Store is a worker's copy. It is safe for concurrent use.
type Store struct {
	client redis.UniversalClient
	logger *slog.Logger

	mu     sync.Mutex
	gone   map[string]Endpoint
	unsaid map[string]Endpoint // what Redis has not been told yet
}

// New makes an empty copy, which [Store.Run] fills.
func New(client redis.UniversalClient, logger *slog.Logger) *Store {
	return &Store{client: client, logger: logger, gone: map[string]Endpoint{}, unsaid: map[string]Endpoint{}}
}

// Held tells whether a tenant's endpoint is to be left alone.
func (s *Store) Held(tenant, url string) (Endpoint, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.gone[ID(tenant, url)]
	return e, ok && time.Now().Before(e.Until)
}

// Gone remembers an endpoint that answered 410, here at once and for all workers
// within seconds. It answers false when there is no room.
func (s *Store) Gone(ctx context.Context, tenant, url, host string) bool {
	now := time.Now().UTC()
	e := Endpoint{ID: ID(tenant, url), Tenant: tenant, Host: host, Since: now, Until: now.Add(Hold)}
	s.mu.Lock()
	if len(s.gone) >= most {
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

// tell writes what Redis has not been told.
func (s *Store) tell(ctx context.Context) error {
	s.mu.Lock()
	unsaid := make([]Endpoint, 0, len(s.unsaid))
	for _, e := range s.unsaid {
		unsaid = append(unsaid, e)
	}
	s.mu.Unlock()
	for _, e := range unsaid {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		pipe := s.client.TxPipeline()
		pipe.HSet(ctx, hash, e.ID, text)
		pipe.Expire(ctx, hash, Hold+time.Hour)
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
		s.mu.Lock()
		delete(s.unsaid, e.ID)
		s.mu.Unlock()
	}
	return nil
}

// Run keeps the copy like Redis until ctx is done. While Redis is away the copy
// stays as it is.
func (s *Store) Run(ctx context.Context) error {
	ticker := time.NewTicker(refresh)
	defer ticker.Stop()
	for {
		if err := s.read(ctx); err != nil && ctx.Err() == nil {
			s.logger.Warn("which endpoints are gone cannot be read", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
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
		if e.Until.After(now) {
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
			gone[id] = e // it came while Redis was read
		}
	}
	s.gone = gone
	return nil
}

// List lists the endpoints that are gone, by tenant and host.
func List(ctx context.Context, client redis.UniversalClient) ([]Endpoint, error) {
	list := []Endpoint{}
	known := map[string]bool{} // HSCAN may tell a field twice
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

// Enable lets an endpoint be called again, by all workers within seconds. It
// answers false when it was not held.
func Enable(ctx context.Context, client redis.UniversalClient, id string) (bool, error) {
	n, err := client.HDel(ctx, hash, id).Result()
	if err != nil {
		return false, fmt.Errorf("enable the endpoint %.40q: %w", id, err)
	}
	return n > 0, nil
}
