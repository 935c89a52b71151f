package main

import (
	"fmt"
	"strings"
)

// target is what headgate promises itself, and what was measured.
type target struct {
	Text     string  `json:"target"`
	AtMost   bool    `json:"at_most"` // else at least
	Bound    float64 `json:"bound"`
	Measured bool    `json:"measured"` // false: -only left it out
	Value    spread  `json:"value"`
	Passed   bool    `json:"passed"`
}

func (t target) judge(value spread, measured bool) target {
	t.Value, t.Measured = value, measured
	t.Passed = measured && (t.AtMost && value.Median <= t.Bound || !t.AtMost && value.Median >= t.Bound)
	return t
}

// missed names the targets that were measured and missed; nil: there is none.
func missed(targets []target) error {
	var names []string
	for _, t := range targets {
		if t.Measured && !t.Passed {
			names = append(names, t.Text)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d targets missed: %s", len(names), len(targets), strings.Join(names, "; "))
}

// targets judges the run. All of them but that of refusals speak of limits that admit everything.
func targets(cells []*cell, memory []weight) []target {
	at := map[load]*cell{}
	for _, c := range cells {
		at[c.load] = c
	}
	ratio := func(l load, name, than string) (spread, bool) { return at[l].ratio(name, than) }
	trips := func(l load) (spread, bool) {
		one := at[l].racer(tokenBucket)
		if one == nil {
			return spread{}, false
		}
		return at[l].over(func(round map[*contender]sample) float64 {
			return round[one].per(float64(round[one].trips))
		}), true
	}
	bytes := func() (spread, bool) {
		for _, w := range memory {
			if w.Contender == tokenBucket {
				return spread{w.Bytes, w.Bytes, w.Bytes}, true
			}
		}
		return spread{}, false
	}
	return []target{
		target{Text: "1 goroutine, 1 key: decisions/s, of the empty script's", Bound: 0.85}.judge(ratio(alone, tokenBucket, emptyScript)),
		target{Text: "1 goroutine, 1 key: decisions/s, of those of TIME, GET, SET PX", Bound: 0.85}.judge(ratio(alone, tokenBucket, stateScript)),
		target{Text: "64 goroutines, 1 key: decisions/s, of redis_rate's", Bound: 8}.judge(ratio(many, tokenBucket, redisRate)),
		target{Text: "64 goroutines, 10000 keys: decisions/s, of redis_rate's", Bound: 2}.judge(ratio(many10k, tokenBucket, redisRate)),
		target{Text: "64 goroutines, 1 key, refused: decisions/s, of redis_rate's", Bound: 100}.judge(ratio(manyRefused, tokenBucket, redisRate)),
		target{Text: "1 goroutine, 1 key: three layers in one call, of one layer's decisions/s", Bound: 0.7}.judge(ratio(alone, threeLayers, tokenBucket)),
		target{Text: "bytes of Redis memory per token bucket", Bound: 140, AtMost: true}.judge(bytes()),
		target{Text: "1 goroutine, 1 key: Take, of its bare script's decisions/s", Bound: 0.95}.judge(ratio(alone, tokenBucket, bareScript)),
		target{Text: "1 goroutine, 1 key: round trips per decision", Bound: 1, AtMost: true}.judge(trips(alone)),
		target{Text: "64 goroutines, 1 key: round trips per decision", Bound: 0.2, AtMost: true}.judge(trips(many)),
		target{Text: "64 goroutines, 10000 keys: round trips per decision", Bound: 0.2, AtMost: true}.judge(trips(many10k)),
	}
}
