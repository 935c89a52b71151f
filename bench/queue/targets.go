package main

import (
	"errors"
	"fmt"
	"slices"
)

// target is what Headgate promises of a figure of one contender. Its median over the
// rounds is judged.
type target struct {
	of     string // contender
	figure figure
	per    string // contender whose figure of the same round it is divided by; "": none
	beyond string // contender whose figure of the same round is subtracted; "": none
	atMost bool   // else at least
	bound  float64
}

// verdict is a target after the run.
type verdict struct {
	target
	workload string
	value    spread
	passed   bool
}

func atLeast(of string, f figure, bound float64) target {
	return target{of: of, figure: f, bound: bound}
}

func atMost(of string, f figure, bound float64) target {
	return target{of: of, figure: f, bound: bound, atMost: true}
}

// times makes the bound a multiple of another contender's figure.
func (t target) times(other string) target {
	t.per = other
	return t
}

// than makes the bound a difference to another contender's figure.
func (t target) than(other string) target {
	t.beyond = other
	return t
}

// judge holds what was measured against the targets. What was not measured is missed.
func judge(w workload, rows []row) []verdict {
	var verdicts []verdict
	for _, t := range w.targets {
		v := verdict{target: t, workload: w.name, value: t.measured(rows)}
		// A value that is not a number passes neither way.
		v.passed = t.atMost && v.value.median <= t.bound || !t.atMost && v.value.median >= t.bound
		verdicts = append(verdicts, v)
	}
	return verdicts
}

func (t target) measured(rows []row) spread {
	find := func(name string) []sample {
		if i := slices.IndexFunc(rows, func(r row) bool { return r.name == name }); i >= 0 {
			return rows[i].samples
		}
		return nil
	}
	own, per, beyond := find(t.of), find(t.per), find(t.beyond)
	var values []float64
	for i, s := range own {
		v, ok := s[t.figure]
		if ok && t.per != "" {
			ok = i < len(per)
			if ok {
				v /= per[i][t.figure]
			}
		}
		if ok && t.beyond != "" {
			ok = i < len(beyond)
			if ok {
				v -= beyond[i][t.figure]
			}
		}
		if ok {
			values = append(values, v)
		}
	}
	return over(values)
}

// String is the target in words, with its bound.
func (t target) String() string {
	sign := "≥"
	if t.atMost {
		sign = "≤"
	}
	text := fmt.Sprintf("%s: %s %s %.4g", t.of, t.figure, sign, t.bound)
	switch {
	case t.per != "":
		return text + " × " + t.per
	case t.beyond != "":
		return text + " beyond " + t.beyond
	}
	return text
}

// missed is an error for each target that was missed, or nil.
func missed(verdicts []verdict) error {
	var errs []error
	for _, v := range verdicts {
		if !v.passed {
			errs = append(errs, fmt.Errorf("target missed: %s: %v, measured %v", v.workload, v.target, v.value))
		}
	}
	return errors.Join(errs...)
}
