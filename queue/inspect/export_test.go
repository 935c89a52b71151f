package inspect

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/internal/store"
)

const (
	MaxLanes   = maxLanes
	DrawnLanes = drawnLanes
)

// AgeForecast makes the forecast of a queue old enough to be renewed by the next
// question. The function that it returns reports whether another forecast is used by now.
func (in *Inspector) AgeForecast(queue string) (renewed func(context.Context) (bool, error)) {
	known := &in.watch(queue).forecast
	first := known.last
	known.until = time.Now()
	return func(ctx context.Context) (bool, error) {
		done, err := take(ctx, known.turn)
		if err != nil {
			return false, err
		}
		defer done()
		return known.last != first, nil
	}
}

// KeepForecast makes the forecast of a queue last for d, as one that took long to read.
func (in *Inspector) KeepForecast(queue string, d time.Duration) {
	in.watch(queue).forecast.until = time.Now().Add(d)
}

// DrawLanes returns the lanes of a new forecast, and which part of all lanes they are.
func DrawLanes(ctx context.Context, client redis.UniversalClient, queue string) (names []string, part float64, err error) {
	f, err := readForecast(ctx, client, queue, atOnce)
	if err != nil {
		return nil, 0, err
	}
	for i := range f.lanes {
		names = append(names, f.lanes[i].Name)
	}
	return names, f.part, nil
}

// Names are the names of a job's lane and buckets, as Go and the scripts write them.
type Names struct {
	Lane                      string
	Buckets, BucketsOfScripts []string
	Cost                      map[string]float64
}

// ReadNames reads the names for a job of kind "call".
func ReadNames(ctx context.Context, client redis.UniversalClient, queue, tenant string, attributes map[string]string, lane, id string) (Names, error) {
	f, err := readForecast(ctx, client, queue, atOnce)
	if err != nil {
		return Names{}, err
	}
	encoded, _ := store.EncodeAttributes(attributes)
	if err := f.look(ctx, client, lane, id); err != nil {
		return Names{}, err
	}
	names := Names{Lane: f.laneName(rediskey.Escape(tenant), "call", encoded), Buckets: f.buckets, Cost: f.seen.cost}
	for _, seen := range f.seen.limits {
		names.BucketsOfScripts = append(names.BucketsOfScripts, seen.key)
	}
	return names, nil
}

// CountBeside counts what a forecast knows beside buckets after a question about another lane, and what the question does.
func CountBeside(ctx context.Context, client redis.UniversalClient, queue, lane string) (shared, asked int, err error) {
	f, err := readForecast(ctx, client, queue, atOnce)
	if err != nil {
		return 0, 0, err
	}
	own := f.copy()
	err = own.with(ctx, client, lane)
	return len(f.beside), len(own.beside), err
}
