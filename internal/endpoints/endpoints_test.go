package endpoints

import (
	"encoding/json"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/operate"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const url = "https://example.com/hooks/T0K3N"

func TestEndpoints(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	here, there := New(client, slog.New(slog.DiscardHandler)), New(client, slog.New(slog.DiscardHandler))
	held := func(s *Store, tenant, url string) bool {
		if err := s.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, held := s.Held(t.Context(), tenant, url)
		return held
	}
	if held(here, "acme", url) {
		t.Error("held before")
	}
	if !here.Gone(t.Context(), "webhook", "acme", url, "example.com") {
		t.Fatal("no room")
	}
	for _, s := range []*Store{here, there} {
		if !held(s, "acme", url) || !held(s, "acme", url+"#part") || held(s, "acme", url+"2") || held(s, "globex", url) {
			t.Error("not held, or others, too")
		}
	}
	list, err := List(t.Context(), client)
	if err != nil || len(list) != 1 || list[0].Tenant != "acme" || list[0].Host != "example.com" || time.Until(list[0].Until) > Hold || time.Until(list[0].Until) < Hold-time.Minute {
		t.Fatalf("%+v, %v", list, err)
	}
	if text := client.HGetAll(t.Context(), hash).Val()[list[0].ID]; strings.Contains(text, "T0K3N") {
		t.Errorf("the URL is stored: %s", text)
	}
	if left := client.TTL(t.Context(), hash).Val(); left <= Hold || left > Hold+time.Hour {
		t.Errorf("it is kept for %v", left)
	}
	redistest.Serve(client, "webhook", "webhook")
	by := operate.Operator{Actor: "ann", Reason: "mended"}
	if err := operate.Publish(t.Context(), client, limits.Set{Queues: map[string]limits.Queue{"webhook": {}}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Enable(t.Context(), client, list[0].ID, operate.Operator{Actor: "ann"}); err == nil {
		t.Error("enabled without a reason")
	}
	for _, was := range []bool{true, false} {
		if _, did, err := Enable(t.Context(), client, list[0].ID, by); did != was || err != nil {
			t.Errorf("%v, %v", did, err)
		}
	}
	// Their copies still have it.
	for _, s := range []*Store{here, there} {
		if _, held := s.Held(t.Context(), "acme", url); held {
			t.Error("held after it was enabled")
		}
	}
}

func TestItsTimeIsOver(t *testing.T) {
	client := redistest.Start(t).Client()
	s := New(client, slog.New(slog.DiscardHandler))
	e := Endpoint{ID: ID("acme", url), Tenant: "acme", Until: time.Now().Add(-time.Second)}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	client.HSet(t.Context(), hash, e.ID, text, "other", "not ours")
	if err := s.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, held := s.Held(t.Context(), "acme", url); held || client.HLen(t.Context(), hash).Val() != 1 {
		t.Error("it is held, or still there")
	}
	s.gone[e.ID] = e // and before it is read again
	if _, held := s.Held(t.Context(), "acme", url); held {
		t.Error("held")
	}
}

// What is found while Redis is away holds here, and is told later.
func TestRedisAway(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	s := New(client, slog.New(slog.DiscardHandler))
	if err := client.Set(t.Context(), hash, "in the way", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Gone(t.Context(), "webhook", "acme", url, "example.com")
	if err := s.read(t.Context()); err == nil {
		t.Error("no error")
	}
	if _, held := s.Held(t.Context(), "acme", url); !held {
		t.Error("not held")
	}
	client.Del(t.Context(), hash)
	if err := s.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, held := s.Held(t.Context(), "acme", url); !held || client.HLen(t.Context(), hash).Val() != 1 || len(s.unsaid) != 0 {
		t.Error("not told")
	}
}

func TestNoRoom(t *testing.T) {
	s := New(redistest.Start(t).Client(), slog.New(slog.DiscardHandler))
	for n := range most {
		s.gone[strconv.Itoa(n)] = Endpoint{}
	}
	if s.Gone(t.Context(), "webhook", "acme", url, "example.com") || len(s.gone) != most {
		t.Errorf("%d are kept", len(s.gone))
	}
}
