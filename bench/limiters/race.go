package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// turns is how many parts a slice has. A round shuffles the contenders anew for
// each, so that all of them see the same minutes of a noisy machine.
const turns = 10

// cell is all contenders under one load.
type cell struct {
	load   load
	racers []*contender
	rounds []map[*contender]sample
}

// race lets the contenders decide in turn, under every load in every round.
func (b *bench) race(ctx context.Context) ([]*cell, error) {
	var cells []*cell
	for _, l := range loads {
		c := &cell{load: l}
		for _, contender := range b.contenders {
			if ask, _ := contender.under(l); ask != nil {
				c.racers = append(c.racers, contender)
				// Connections are made and scripts loaded before anything is measured.
				if _, err := b.slice(ctx, contender, l, b.config.slice/turns); err != nil {
					return nil, fmt.Errorf("%v: %s: %w", l, contender.name, err)
				}
			}
		}
		cells = append(cells, c)
	}
	for range b.config.rounds {
		for _, c := range cells {
			if err := b.round(ctx, c); err != nil {
				return nil, err
			}
		}
	}
	return cells, nil
}

func (b *bench) round(ctx context.Context, c *cell) error {
	sums := map[*contender]sample{}
	order := slices.Clone(c.racers)
	for range turns {
		rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, contender := range order {
			part, err := b.slice(ctx, contender, c.load, b.config.slice/turns)
			if err != nil {
				return fmt.Errorf("%v: %s: %w", c.load, contender.name, err)
			}
			sums[contender] = sums[contender].plus(part)
		}
	}
	c.rounds = append(c.rounds, sums)
	return nil
}

// spread is what the rounds said.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// over is a figure of each round.
func (c *cell) over(figure func(round map[*contender]sample) float64) spread {
	values := make([]float64, len(c.rounds))
	for i, round := range c.rounds {
		values[i] = figure(round)
	}
	slices.Sort(values)
	n := len(values)
	return spread{Median: (values[(n-1)/2] + values[n/2]) / 2, Min: values[0], Max: values[n-1]}
}

// ratio is how much faster a contender is than another, within each round. It
// is false where one of them was not measured.
func (c *cell) ratio(name, than string) (spread, bool) {
	one, other := c.racer(name), c.racer(than)
	if one == nil || other == nil {
		return spread{}, false
	}
	return c.over(func(round map[*contender]sample) float64 {
		if base := round[other].perSecond(); base > 0 {
			return round[one].perSecond() / base
		}
		return 0
	}), true
}

func (c *cell) racer(name string) *contender {
	for _, contender := range c.racers {
		if contender.name == name {
			return contender
		}
	}
	return nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
