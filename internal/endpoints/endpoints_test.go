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
		_, again := s.Held(t.Context(), tenant, url)
		return !again.IsZero()
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
	if left := client.TTL(t.Context(), hash).Val(); left <= Hold || left > 2*Hold {
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
		if gone, again := s.Held(t.Context(), "acme", url); gone != nil || !again.IsZero() {
			t.Error("held after it was enabled")
		}
	}
}

// TestItsTimeIsOver: after the time, one job tries the endpoint, whose answer is for all.
func TestItsTimeIsOver(t *testing.T) {
	client := redistest.Start(t).Client()
	logger := slog.New(slog.DiscardHandler)
	over := Endpoint{ID: ID("acme", url), Queue: "webhook", Tenant: "acme", Until: time.Now().Add(-time.Second)}
	here, there := New(client, logger), New(client, logger)
	list := func(e Endpoint) {
		t.Helper()
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		client.HSet(t.Context(), hash, e.ID, text, "other", "not ours")
		for _, s := range []*Store{here, there} {
			if err := s.read(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	list(over)
	gone, again := here.Held(t.Context(), "acme", url)
	if gone == nil || !again.IsZero() {
		t.Fatalf("nobody tries it: %+v, %v", gone, again)
	}
	for _, s := range []*Store{here, there} {
		if _, again := s.Held(t.Context(), "acme", url); time.Until(again) <= 0 || time.Until(again) > Try {
			t.Errorf("the others wait for %v", time.Until(again))
		}
	}
	// Nothing came of it, as if its worker had died.
	client.Del(t.Context(), tryKey+over.ID)
	if _, again := there.Held(t.Context(), "acme", url); !again.IsZero() {
		t.Error("nobody tries it again")
	}
	there.Gone(t.Context(), "webhook", "acme", url, "example.com")
	if _, again := here.Held(t.Context(), "acme", url); time.Until(again) < Hold-time.Minute {
		t.Errorf("after another 410 it is held for %v", time.Until(again))
	}
	list(over)
	client.Del(t.Context(), tryKey+over.ID)
	if gone, _ = here.Held(t.Context(), "acme", url); gone == nil {
		t.Fatal("not tried")
	}
	here.Back(t.Context(), *gone)
	for _, s := range []*Store{here, there} {
		if gone, again := s.Held(t.Context(), "acme", url); gone != nil || !again.IsZero() {
			t.Error("held after it answered")
		}
	}
	over.Until = time.Now().Add(-Hold)
	list(over)
	if len(here.gone) != 0 || client.HLen(t.Context(), hash).Val() != 1 {
		t.Error("it is remembered for ever")
	}
}

// TestEnableAgain: an endpoint whose jobs could not be woken is called, and can be enabled again.
func TestEnableAgain(t *testing.T) {
	client := redistest.Start(t).Client()
	s := New(client, slog.New(slog.DiscardHandler))
	s.Gone(t.Context(), "webhook", "acme", url, "example.com")
	id, by := ID("acme", url), operate.Operator{Actor: "ann", Reason: "mended"}
	if _, _, err := Enable(t.Context(), client, id, by); err == nil {
		t.Fatal("jobs of a queue that does not exist are woken")
	}
	if gone, again := s.Held(t.Context(), "acme", url); gone != nil || !again.IsZero() {
		t.Error("it is held")
	}
	if err := operate.Publish(t.Context(), client, limits.Set{Queues: map[string]limits.Queue{"webhook": {}}}); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := Enable(t.Context(), client, id, by); !ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	entries, err := operate.Audit(t.Context(), client, "webhook", 10)
	if err != nil {
		t.Fatal(err)
	}
	enabled := 0
	for _, e := range entries {
		if e.Action == "enable" {
			enabled++
		}
	}
	if enabled != 1 {
		t.Errorf("the audit says %d times that it was enabled", enabled)
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
	if _, again := s.Held(t.Context(), "acme", url); again.IsZero() {
		t.Error("not held")
	}
	client.Del(t.Context(), hash)
	if err := s.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, again := s.Held(t.Context(), "acme", url); again.IsZero() || client.HLen(t.Context(), hash).Val() != 1 || len(s.unsaid) != 0 {
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
	delete(s.gone, "0")
	for range 2 { // the second time after its day, when a job has tried it
		if !s.Gone(t.Context(), "webhook", "acme", url, "example.com") || len(s.gone) != most {
			t.Error("the last one is not kept")
		}
	}
}
