package throttle

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// keyRates has what blocks know of each key, by a hash of the key: how many permits it used lately in the time of a
// block, and what was refused. Keys that share a hash have blocks for both, which is only a question of size.
type keyRates struct {
	seed  maphash.Seed
	start time.Time
	hold  time.Duration
	of    [1024]keyRate
}

// keyRate has moments as times since the start.
type keyRate struct {
	began atomic.Int64 // when used was 0
	used  atomic.Int64 // permits since then
	size  atomic.Int64 // in the time before, for as long as a block is held

	block, call atomic.Pointer[blockRefusal] // the latest block and the latest single call that were refused
}

// blockRefusal is what Redis refused.
type blockRefusal struct {
	key      string
	n        int64
	decision Decision
	at       time.Time
}

// lasts reports whether it is still too soon to ask Redis again, and for how long it is known. That ends with the time
// of a block: what other processes hold is given back by then.
func (r *blockRefusal) lasts(key string, hold time.Duration) (since time.Duration, lasts bool) {
	if r == nil || r.key != key {
		return 0, false
	}
	since = passed(r.at, time.Now())
	return since, since < min(hold, r.decision.RetryAfter)
}

// admit notes that a block was admitted. Answers to calls that were asked before it are not remembered, so it leaves
// something that differs from what these saw.
func (k *keyRate) admit() {
	k.block.Store(nil)
	k.call.Store(&blockRefusal{})
}

func (k *keyRates) rate(key string) *keyRate {
	return &k.of[maphash.String(k.seed, key)%uint64(len(k.of))]
}

// size returns how many permits a key used in the last hold.
func (k *keyRates) size(r *keyRate) int64 {
	now := int64(time.Since(k.start))
	if began := r.began.Load(); now-began >= int64(k.hold) && r.began.CompareAndSwap(began, now) {
		r.size.Store(int64(float64(r.used.Swap(0)) * float64(k.hold) / float64(now-began)))
	}
	return r.size.Load()
}
