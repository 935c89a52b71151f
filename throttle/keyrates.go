package throttle

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// keyRates has what blocks know of the keys that are asked about most. A key has one place, by its hash, and may share it
// with others.
type keyRates struct {
	seed maphash.Seed
	hold time.Duration
	of   [1024]keyRate
}

// keyRate is one place. It counts what two keys use for the time of a block: the owner, which alone may have blocks, and a
// rival, which is one of the others. The one that used more owns the place for the next time of a block.
type keyRate struct {
	mu           sync.Mutex
	began        time.Time // when neither had used any
	owner, rival keyUse
	size         int64 // what the owner used in the time before, for as long as a block is held

	block, call atomic.Pointer[blockRefusal] // the latest block and the latest single call that were refused
}

// keyUse is how many permits a key used.
type keyUse struct {
	key  string
	used int64
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

// size returns how many permits a key used in the last hold, or 0 if it does not own its place.
func (k *keyRates) size(r *keyRate, key string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.began) >= k.hold {
		if r.rival.used > r.owner.used {
			r.owner, r.rival = r.rival, r.owner
		}
		r.size = int64(float64(r.owner.used) * float64(k.hold) / float64(now.Sub(r.began)))
		r.began, r.owner.used, r.rival.used = now, 0, 0
	}
	if key != r.owner.key {
		return 0
	}
	return r.size
}

// use notes that a key used n permits.
func (r *keyRate) use(key string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch key {
	case r.owner.key:
		r.owner.used += n
	case r.rival.key:
		r.rival.used += n
	default:
		// A key that uses more than all others but the owner ends as the rival, whoever came first.
		if r.rival.used -= n; r.rival.used < 0 {
			r.rival = keyUse{key, -r.rival.used}
		}
	}
}
