package limitlua

import (
	"fmt"
	"strconv"
	"strings"
)

// Lease is what a leased bucket has, as limits.lua stores it. Times are in µs, and but for Last those of the ledger's
// clock.
type Lease struct {
	ID    int64       // names the holder at the ledger
	Last  int64       // the latest moment given
	At    int64       // when it was given, or of a pool when the bucket asked last, by the clock of Last
	Spans []LeaseSpan // of a rate, by time

	N, Spent, Keep int64 // but of a rate: permits, used ones included, up to how many may be used
	From, Ends     int64 // the same: its window; of a pool, only when the lease ends

	kind               string
	shift, share, used int64
}

// LeaseSpan is a part of the timeline of a rate: see limits.lua.
type LeaseSpan struct {
	Permit, Flow, Burst  int64
	From, FromUnits      int64
	Next, NextUnits      int64 // what is before is spent
	KeepUntil, KeepUnits int64
}

// ReadLease reads the text of a leased bucket, without a pause behind it.
func ReadLease(text string) (l Lease, err error) {
	var n []int64
	for word := range strings.FieldsSeq(text[min(2, len(text)):]) {
		one, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return Lease{}, notALease(text)
		}
		n = append(n, one)
	}
	const head, span, quota, pool = 7, 9, 5, 6
	kind, ok := text[:min(1, len(text))], false
	switch rest := len(n) - head; kind {
	case "l":
		ok = rest >= 0 && rest%span == 0
	case "q":
		ok = rest == quota
	case "p":
		ok = rest >= pool && rest%2 == 0
	}
	if !ok {
		return Lease{}, notALease(text)
	}
	l = Lease{ID: n[0], kind: kind, shift: n[2], share: n[3], used: n[4], Last: n[5], At: n[6]}
	n = n[head:]
	switch kind {
	case "q":
		l.N, l.Spent, l.Keep, l.From, l.Ends = n[0], n[1], n[2], n[3], n[4]
		return l, nil
	case "p":
		l.N, l.Spent, l.Keep, l.Ends = n[0], n[1], n[2], n[3]
		return l, nil
	}
	for ; len(n) > 0; n = n[span:] {
		if n[0] <= 0 || n[1] <= 0 {
			return Lease{}, notALease(text)
		}
		l.Spans = append(l.Spans, LeaseSpan{n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8]})
	}
	return l, nil
}

func notALease(text string) error { return fmt.Errorf("bucket %.60q: it is not a leased bucket", text) }

// fill sets what is stored of the bucket of a limit. now is the bucket's.
func (l *Lease) fill(out *Stored, limit *Spec, now int64) {
	out.Share = min(float64(l.share)/1e6, 1)
	burst, since := limit.Burst, max(0, now-l.At)
	now += l.shift
	for _, s := range l.Spans {
		if next := max(s.Next, now); s.KeepUntil > next {
			out.Left += float64((s.KeepUntil - next) * s.Flow / s.Permit)
		}
	}
	if l.kind == "l" {
		return
	}
	// Of what is not leased yet the holder gets its share.
	rest, own := 1-float64(l.used)/1e6, 0.0
	if now < l.Ends {
		own = float64(max(0, min(l.N, l.Keep)-l.Spent))
	} else if l.kind == "q" {
		rest = 1
	}
	if l.kind == "p" {
		rest = min(1, rest+float64(since)*float64(limit.Flow)/float64(limit.Permit)/float64(burst))
	}
	out.Left = own + rest*out.Share*float64(burst)
	out.Used = max(0, out.Share*float64(burst)-out.Left)
}
