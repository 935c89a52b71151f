package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate/queue/inspect"
)

const (
	pingEvery  = 15 * time.Second
	comeAgain  = 2 * time.Second  // before a client reconnects
	maxWriting = 10 * time.Second // to write a message

	maxStreamTime = time.Hour
)

// eventJSON is what happened to a job, with the names of the job's own fields.
type eventJSON struct {
	Event   string  `json:"event"` // id of the event
	At      moment  `json:"at"`
	ID      string  `json:"id"`
	Queue   string  `json:"queue"`
	Tenant  string  `json:"tenant"`
	Kind    string  `json:"kind"`
	Outcome string  `json:"outcome"`
	Answer  string  `json:"answer,omitempty"`
	Attempt int     `json:"attempt"`
	Took    float64 `json:"took_seconds"`
	Error   string  `json:"error,omitempty"`
}

func eventOf(e inspect.Event) eventJSON {
	return eventJSON{
		e.ID, moment{e.At}, e.Job, e.Queue, e.Tenant, e.Kind, string(e.Outcome), string(e.Answer), e.Attempt, e.Took.Seconds(), e.Reason,
	}
}

type redisJSON struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

// events streams server-sent events.
func (a *API) events(r *request) error {
	only, tenant := r.param("queue"), r.param("tenant")
	if tenant != "" && !r.caller.mayTenant(tenant) {
		return otherTenant(tenant)
	}
	control := http.NewResponseController(r.w)
	release, err := a.streams.take(r.caller)
	if err != nil {
		return err
	}
	defer release()
	stream := a.watch.add()
	if stream == nil {
		p := newProblem(http.StatusTooManyRequests, codeBusy, "The server is shutting down.")
		p.retryAfter = 5 * time.Second
		return p
	}
	defer a.watch.remove(stream)
	end := time.NewTimer(maxStreamTime)
	defer end.Stop()
	h := r.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // keeps nginx from buffering
	r.w.WriteHeader(http.StatusOK)
	write := func(text []byte) bool {
		if control.SetWriteDeadline(time.Now().Add(maxWriting)) != nil {
			return false
		}
		_, err := r.w.Write(text)
		return err == nil && control.Flush() == nil
	}
	if !write(fmt.Appendf(nil, "retry: %d\n\n", comeAgain.Milliseconds())) {
		return nil
	}
	s := &teller{api: a, r: r, queue: only, tenant: tenant}
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		var text []byte
		select {
		case <-r.Context().Done():
			return nil
		case <-end.C:
			return nil // the client comes again by itself
		case <-ping.C:
			text = []byte(": ping\n\n")
		case news, ok := <-stream.news:
			if !ok {
				if stream.slow {
					write([]byte(": too slow, reconnect\n\n"))
				}
				return nil
			}
			before := r.caller.key.Tenants
			if r.caller, _ = a.again(r, Read); !slices.Equal(before, r.caller.key.Tenants) {
				s.own = nil
			}
			if !r.caller.key.may(Read) || tenant != "" && !r.caller.mayTenant(tenant) {
				return nil // the key was revoked or narrowed, or has expired
			}
			if text = s.text(news); len(text) == 0 {
				continue
			}
		}
		if !write(text) {
			return nil
		}
	}
}

// teller formats events for one stream, limited to what its client may see.
type teller struct {
	api           *API
	r             *request
	queue, tenant string
	own           []overviewJSON // the last ones of a key for single tenants
}

func (t *teller) wants(e inspect.Event) bool {
	return t.about(e.Queue) && (t.tenant == "" || e.Tenant == t.tenant) && t.r.caller.mayTenant(e.Tenant) && t.r.caller.mayKind(e.Kind)
}

// about reports whether the stream is about a queue.
func (t *teller) about(queue string) bool {
	return (t.queue == "" || queue == t.queue) && t.r.caller.mayQueue(queue)
}

func (t *teller) text(news seen) []byte {
	var b bytes.Buffer
	event := func(name string, data any) {
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", name, mustJSON(data))
	}
	if news.overviews != nil {
		event("overview", t.overview(news))
	}
	for _, n := range news.ended {
		if !t.r.caller.some() && t.about(n.queue) {
			event("history", historyJSON{n.queue, lookEvery.Seconds(), moment{n.from}, n.points})
		}
	}
	var finished []eventJSON
	for _, e := range news.events {
		if t.wants(e) {
			finished = append(finished, eventOf(e))
		}
	}
	if n := len(finished); n > 0 {
		shown := finished[max(0, n-maxEvents):]
		event("finished", map[string]any{"events": shown, "skipped": n - len(shown)})
	}
	for _, e := range news.audit {
		if t.about(e.Queue) && t.r.maySee(e) {
			event("audit", map[string]any{"entry": auditOf(e)})
		}
	}
	return b.Bytes()
}

func (t *teller) overview(news seen) any {
	all, names := []overviewJSON{}, []string{}
	for _, o := range news.overviews {
		if t.about(o.Queue) {
			all, names = append(all, overviewOf(o)), append(names, o.Queue)
		}
	}
	err := news.err
	if !t.r.caller.all() {
		// A key for single tenants needs overviews of its own; the readings are shared.
		if all = nil; err == nil {
			all, err = t.api.overviewsFor(t.r.Context(), t.r.caller, names, t.own)
			t.own = all
		}
	}
	state := redisJSON{OK: err == nil}
	if err != nil {
		state.Error = problemOf(err).Detail
	}
	return map[string]any{"queues": list(all), "redis": state}
}

// mustJSON encodes a value of a type that always encodes.
func mustJSON(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}

// historyJSON has some seconds of a queue.
type historyJSON struct {
	Queue  string  `json:"queue"`
	Step   float64 `json:"step_seconds"`
	From   moment  `json:"from"`
	Points []point `json:"points"`
}

// historyOf serves the last ten minutes of a queue.
func (a *API) historyOf(r *request) (answer, error) {
	if err := a.thereIs(r); err != nil {
		return answer{}, err
	}
	from, points := a.watch.history.of(r.PathValue("q"))
	if from.IsZero() {
		from = time.Now()
	}
	return answer{body: historyJSON{r.PathValue("q"), lookEvery.Seconds(), moment{from}, list(points)}}, nil
}
