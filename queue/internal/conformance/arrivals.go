package conformance

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/queue/internal/store"
)

// Arrivals are the calls of a queue that became known in the last day, or the latest of them if they are too many to be
// kept: when their jobs came, and what the calls took.
type Arrivals struct {
	Lanes []store.Lane // by number
	Took  []Took       // by number; the first is one permit
	Calls []Arrival    // in the order in which they became known
}

// Arrival is a call.
type Arrival struct {
	Left       int64 // when it left, Unix ms
	Waited     int32 // ms from when its job came or became due; -1: it was not the first call of a job
	Lane, Took int32 // their numbers
	Direct     bool  // a call without a job
}

// Came returns when the call's job came, Unix ms; of a call of which that is not known, when it left.
func (a *Arrival) Came() int64 { return a.Left - max(0, int64(a.Waited)) }

// Took is what a call took.
type Took struct {
	cost  int64
	costs string // by unit
	back  bool   // it was given back
}

// Of returns how many permits of a unit it is, and less than 0 for what was given back.
func (t Took) Of(unit string) int64 {
	n := t.cost
	if unit != "" {
		n = 0
		for part := range strings.SplitSeq(t.costs, ";") { // what was used comes before what was expected
			if name, took, _ := strings.Cut(part, "="); name == unit {
				n, _ = strconv.ParseInt(took, 10, 64)
				break
			}
		}
	}
	if t.back {
		n = -n
	}
	return n
}

// ReadArrivals reads the arrivals of a queue.
func ReadArrivals(ctx context.Context, client redis.UniversalClient, queue string) (a Arrivals, err error) {
	all, err := pageNumbers(ctx, client, queue)
	if err != nil {
		return Arrivals{}, err
	}
	a.Took = []Took{{cost: 1}}
	lanes, took := map[string]uint64{}, map[string]uint64{"1": 0}
	for _, began := range all {
		text, err := client.Get(ctx, pageKey(queue, began)).Bytes()
		if errors.Is(err, redis.Nil) {
			continue // it has just been dropped
		}
		if err != nil {
			return Arrivals{}, err
		}
		if err := a.read(text, lanes, took); err != nil {
			return Arrivals{}, fmt.Errorf("%s: %w", pageKey(queue, began), err)
		}
	}
	return a, nil
}

// read adds a page. lanes and took are the numbers in a.
func (a *Arrivals) read(text []byte, lanes, took map[string]uint64) error {
	return readPage(text, func(name, taken string, left, waited int64) {
		lane, known := number(lanes, name)
		if !known {
			a.Lanes = append(a.Lanes, store.ParseLane(strings.TrimPrefix(name, " ")))
		}
		cost, known := number(took, taken)
		if !known {
			a.Took = append(a.Took, parseTook(taken))
		}
		a.Calls = append(a.Calls, Arrival{
			Left: left, Waited: int32(min(waited, math.MaxInt32)), Lane: int32(lane), Took: int32(cost), Direct: strings.HasPrefix(name, " "),
		})
	})
}

// text returns "COST;unit=n;…", each unit once; behind a "-" if it was given back.
func (t Took) text() string {
	text := strconv.FormatInt(t.cost, 10)
	if t.back {
		text = "-" + text
	}
	seen := ""
	for part := range strings.SplitSeq(t.costs, ";") {
		if unit, n, ok := strings.Cut(part, "="); ok && !strings.Contains(seen, unit+"=") {
			seen += ";" + unit + "=" + n
		}
	}
	return text + seen
}

// parseTook reads what text returns.
func parseTook(text string) (t Took) {
	text, t.back = strings.CutPrefix(text, "-")
	cost, costs, _ := strings.Cut(text, ";")
	t.cost, _ = strconv.ParseInt(cost, 10, 64)
	t.costs = costs
	return t
}

// readPage reads the calls of a page: of each the name of its lane, behind a space if it was without a job, and what it took.
func readPage(text []byte, tell func(name, taken string, left, waited int64)) error {
	var names, costs []string
	var failed bool
	next := func() uint64 {
		n, size := binary.Uvarint(text)
		failed = failed || size <= 0
		text = text[max(size, 0):]
		return n
	}
	name := func(of *[]string, n uint64) string {
		if n == uint64(len(*of)) {
			length := next()
			if failed = failed || length > uint64(len(text)); failed {
				return ""
			}
			*of = append(*of, string(text[:length]))
			text = text[length:]
		}
		if failed = failed || n >= uint64(len(*of)); failed {
			return ""
		}
		return (*of)[n]
	}
	for left := int64(0); len(text) > 0; {
		head := next()
		lane := name(&names, head>>1)
		since, size := binary.Varint(text)
		failed = failed || size <= 0
		text = text[max(size, 0):]
		waited, took := int64(next())-1, "1"
		if head&1 == 1 {
			took = name(&costs, next())
		}
		if failed {
			return errors.New("it is damaged")
		}
		left += since
		tell(lane, took, left, waited)
	}
	return nil
}

// readPages returns the pages of a queue, to which calls can be added.
func readPages(ctx context.Context, client redis.UniversalClient, queue string) (*pages, error) {
	all, err := pageNumbers(ctx, client, queue)
	if err != nil || len(all) == 0 {
		return &pages{}, err
	}
	last := len(all) - 1
	text, err := client.Get(ctx, pageKey(queue, all[last])).Bytes()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	p := &pages{all: all, size: len(text), lanes: map[string]uint64{}, costs: map[string]uint64{}}
	if len(text) == 0 || readPage(text, func(name, taken string, left, _ int64) {
		number(p.lanes, name)
		if taken != "1" {
			number(p.costs, taken)
		}
		p.left = left
	}) != nil {
		p.size = pageBytes // calls go to a new one
	}
	return p, nil
}

// pageNumbers returns when the pages of a queue began, Unix ms, ascending.
func pageNumbers(ctx context.Context, client redis.UniversalClient, queue string) (all []int64, err error) {
	names, err := client.ZRange(ctx, store.Key(queue, "arrivals"), 0, -1).Result()
	for _, name := range names {
		if n, err := strconv.ParseInt(name, 10, 64); err == nil {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, err
}

func pageKey(queue string, began int64) string {
	return store.Key(queue, "arrivals:"+strconv.FormatInt(began, 10))
}
