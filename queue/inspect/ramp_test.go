package inspect

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/queue/internal/effective"
	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// TestRampIsLanes: forecasts know how far a limit has grown as the scripts do.
func TestRampIsLanes(t *testing.T) {
	t.Parallel()
	client, queue := redistest.Any(t).Client(), redistest.Queue(t)
	script := store.NewScript(`
set_calendars(ARGV[2])
local spec, entry = cjson.decode(ARGV[3]), {key = ARGV[4], ramp = cjson.decode(ARGV[5])}
spec.c = calendars['new']
local now = ramps().spec(entry, spec, tonumber(ARGV[6]))
return {string.format('%.0f', now.p), string.format('%.0f', now.r), string.format('%.0f', now.b)}`)
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(5, 6))
	begin := time.Date(2027, 3, 20, 0, 0, 0, 0, time.UTC)
	grew := 0
	for range 500 {
		limit := limits.Limit{Name: "new", Per: []string{"tenant"}, Burst: 1 + random.Int64N(300)}
		limit.Algorithm = []throttle.Algorithm{throttle.TokenBucket, throttle.LeakyBucket, throttle.FixedWindow, throttle.SlidingWindowCounter, throttle.SlidingWindowLog}[random.IntN(5)]
		from := throttle.Rate{Count: 1 + random.Int64N(100), Period: []time.Duration{time.Second, time.Hour, 24 * time.Hour}[random.IntN(3)]}
		if limit.Algorithm == throttle.FixedWindow && random.IntN(2) == 0 {
			limit.Location, from.Period = berlin, 24*time.Hour
		}
		limit.Rate = from
		limit.Rate.Count += 1 + random.Int64N(5000)
		limit.Ramp = &limits.Ramp{From: from, Over: time.Duration(1+random.IntN(60)) * from.Period}
		now := begin.Add(time.Duration(random.Int64N(int64(30 * 24 * time.Hour)))).Truncate(time.Microsecond)
		began := now.Add(-time.Duration(random.Int64N(int64(70 * from.Period))))
		if random.IntN(10) == 0 {
			began = now.Add(time.Minute) // the clock was set back
		}
		text := fmt.Sprint(began.UnixMicro(), began.Add(now.Sub(began)/2).UnixMicro(), random.IntN(100_000), random.IntN(5_000))
		if random.IntN(20) == 0 {
			text = ""
		}
		l := lane{Lane: store.ParseLane("a"), buckets: []int{0}}
		bucket := store.BucketKey(queue, limit, &l.Lane)
		set := limits.Queue{Limits: []limits.Limit{limit}}
		f := &forecast{queue: queue, now: now, rules: set, buckets: []string{bucket}, beside: map[string]string{store.Key(queue, "ramp:"+strings.TrimPrefix(bucket, store.Key(queue, "b:"))): text}}
		f.limits.Queue, f.limits.Now = effective.StoreQueue(set, nil), now
		f.setCalendars()
		if err := client.Set(t.Context(), f.keyBeside(ofRamp, bucket), text, 0).Err(); err != nil {
			t.Fatal(err)
		}
		calendars, err := f.limits.Queue.Calendars(now)
		if err != nil {
			t.Fatal(err)
		}
		stored := f.limits.Queue.Limits[0]
		own := limit.With(limits.Change{})
		if random.IntN(4) == 0 { // the tenant's own rate may be lower
			own.Rate.Count = 1 + random.Int64N(limit.Rate.Count)
			f.limits.Tenants = map[string]effective.Tenant{"a": {Limits: map[string]limitlua.Spec{"new": effective.Spec(own)}}}
		}
		spec, _ := json.Marshal(effective.Spec(own))
		ramp, _ := json.Marshal(stored.Ramp)
		reply, err := script.Run(t.Context(), client, store.ScriptKeys(queue), queue, calendars, spec, bucket, ramp, now.UnixMicro())
		got := f.spec(0, &l)
		if want := fmt.Sprint([]int64{got.Permit, got.Flow, got.Burst}); err != nil || fmt.Sprint(reply) != want {
			t.Errorf("%s %v %v, %v after its beginning (%s): the scripts have %v, %v; forecasts %s", limit.Algorithm, limit.Rate, *limit.Ramp, now.Sub(began), text, reply, err, want)
		}
		if got != effective.Spec(own) {
			grew++
		}
	}
	if grew < 200 {
		t.Errorf("only %d of 500 limits had not grown yet", grew)
	}
}
