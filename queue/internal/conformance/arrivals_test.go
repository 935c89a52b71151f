package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

func (a *audited) arrivals() Arrivals {
	a.t.Helper()
	all, err := ReadArrivals(a.t.Context(), a.client, a.of.Queue)
	if err != nil {
		a.t.Fatal(err)
	}
	return all
}

// text returns a call as text.
func (a *Arrivals) text(i int) string {
	c := a.Calls[i]
	return fmt.Sprint(a.Lanes[c.Lane].Name, " ", c.Left, " ", c.Waited, " ", c.Direct, " ", a.Took[c.Took].Of(""), " ", a.Took[c.Took].Of("tokens"))
}

// TestArrivals: all calls are kept once, with what they took and how long their jobs waited, whoever counts them.
func TestArrivals(t *testing.T) {
	t.Parallel()
	a := startAudited(t, 2, limits.Limit{Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(5), Per: []string{"tenant", "model"}})
	auditors := []*Auditor{NewAuditor(a.of, a.client), NewAuditor(a.of, a.client)}
	now := time.Now().UnixMilli()
	var want []string
	for i := range 60 {
		c := told{tenant: fmt.Sprintf("é %d", i%7), at: (now + int64(i*37%50)) * 1000, cost: 1, waited: "@" + strconv.Itoa(i*1000)}
		name, waited := "%C3%A9%20"+strconv.Itoa(i%7)+";kind=call", int64(i*1000)
		switch i % 5 {
		case 1:
			c.model, name = "x", name+";model=x"
		case 2:
			c.cost, c.tokens = 3, int64(100+i%2)
		case 3:
			c.direct, c.waited, waited = true, "", -1
			c.back = i%2 == 1
		}
		cost, tokens := c.cost, c.tokens
		if c.back {
			cost = -cost
		}
		want = append(want, fmt.Sprint(name, " ", c.at/1000, " ", waited, " ", c.direct, " ", cost, " ", tokens))
		a.event("", c)
		if i%10 == 9 {
			a.count(auditors[i/10%2])
		}
	}
	all := a.arrivals()
	var got []string
	for i := range all.Calls {
		got = append(got, all.text(i))
	}
	for _, call := range want {
		if i := slices.Index(got, call); i >= 0 {
			got = slices.Delete(got, i, i+1)
		} else {
			t.Errorf("missing: %s", call)
		}
	}
	for _, call := range got {
		t.Errorf("too many: %s", call)
	}
	key := store.Key(a.of.Queue, "arrivals")
	pages := a.client.ZRange(t.Context(), key, 0, -1).Val()
	if len(pages) != 1 {
		t.Fatalf("pages %v", pages)
	}
	for _, key := range []string{key, key + ":" + pages[0]} {
		if ttl := a.client.TTL(t.Context(), key).Val(); ttl < 24*time.Hour || ttl > 26*time.Hour {
			t.Errorf("%s is kept for %v", key, ttl)
		}
	}

	// Pages of more than a day ago go, with what they have.
	old := []string{strconv.FormatInt(now-3*keepsDay, 10), strconv.FormatInt(now-2*keepsDay, 10)}
	for _, page := range old {
		if err := errors.Join(a.client.ZAdd(t.Context(), key, redis.Z{Score: float64(now - 2*keepsDay), Member: page}).Err(), a.client.Set(t.Context(), key+":"+page, "", 0).Err()); err != nil {
			t.Fatal(err)
		}
	}
	auditors[0].Forget()
	a.event("", told{tenant: "next", at: now * 1000, cost: 1})
	a.count(auditors[0])
	if left := a.client.ZRange(t.Context(), key, 0, -1).Val(); !slices.Equal(left, []string{old[1], pages[0]}) || a.client.Exists(t.Context(), key+":"+old[0]).Val() > 0 {
		t.Errorf("pages %v are left", left)
	}
	a.client.ZRem(t.Context(), key, old[1])

	// A damaged page is said, and calls go to a new one.
	if err := a.client.Append(t.Context(), key+":"+pages[0], "\x7f").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadArrivals(t.Context(), a.client, a.of.Queue); err == nil || !strings.Contains(err.Error(), pages[0]+": it is damaged") {
		t.Errorf("of a damaged page: %v", err)
	}
	auditors[0].Forget()
	a.event("", told{tenant: "later", at: now * 1000, cost: 1})
	a.count(auditors[0])
	if pages := a.client.ZRange(t.Context(), key, 0, -1).Val(); len(pages) != 2 {
		t.Errorf("pages %v after one was damaged", pages)
	}
}

// TestPagesAreBounded: what is kept has a bound in bytes, and of what is old nothing is kept.
func TestPagesAreBounded(t *testing.T) {
	p := &pages{}
	now := int64(1_795_900_000_000)
	kept := map[int64]int{} // bytes by page
	add := func(calls []call) {
		writes := p.add(calls, now)
		for i := 0; i < len(writes); i += 4 {
			switch page := writes[i+1].(int64); writes[i] {
			case "page":
				kept[page] += len(writes[i+2].([]byte))
			case "drop":
				delete(kept, page)
			}
		}
	}
	piece := make([]call, 1000)
	for i := range piece {
		piece[i] = call{lane: store.Lane{Name: fmt.Sprintf("tenant-%d;kind=call", i%300)}, at: now * 1000, waited: 70_000, Took: Took{cost: 1}}
	}
	most := 0
	for range 3000 { // three million
		now += 10
		add(piece)
		all := 0
		for _, n := range kept {
			all += n
		}
		most = max(most, all)
	}
	if calls := most / 7; most > (maxPages+1)*pageBytes || calls < 1_000_000 {
		t.Errorf("%d bytes of about %d calls were kept", most, calls)
	}
	for range 30 {
		now += pageLasts
		add(piece[:1])
	}
	if len(kept) != 26 || len(kept) != len(p.all) {
		t.Errorf("%d pages of the last day, of %d that are known", len(kept), len(p.all))
	}
}

// FuzzReadPage: any text is read or refused.
func FuzzReadPage(f *testing.F) {
	p := &pages{}
	writes := p.add([]call{
		{lane: store.Lane{Name: "a;kind=call"}, at: 1_795_900_000_000_000, waited: -1, direct: true, Took: Took{cost: 1, back: true}},
		{lane: store.Lane{Name: "b;kind=call"}, at: 1_795_900_000_005_000, waited: 12, Took: Took{cost: 7, costs: "tokens=3;tokens=9"}},
	}, 1_795_900_000_000)
	f.Add(writes[2].([]byte))
	f.Add([]byte("\x01\x01a\x00\x00\x00\x011" + "\x01\x00\x00\x01\x012")) // one permit, which is not written, and two
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var a Arrivals
		a.Took = []Took{{cost: 1}}
		if a.read(text, map[string]uint64{}, map[string]uint64{"1": 0}) != nil {
			return
		}
		for i := range a.Calls {
			_ = a.text(i)
		}
	})
}
