package queue

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/partition"
	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/encryption"
	"github.com/headgate/headgate/queue/internal/asynqwire"
	"github.com/headgate/headgate/queue/limits"
)

// accepted is a valid job, encoded for enqueue.lua.
type accepted struct {
	id, home, tenant, attributes, kind, digest string
	fresh                                      bool // the id was just made, so no other job has it

	cost          int64
	costs         string // "unit=n;…"
	band          int
	deadline, due int64  // Unix µs, 0: none; Unix seconds, 0: now
	unique        string // the key that the job holds; "": none, or it is the id
	window        int64  // µs for which it holds the key; 0: until it ends
	message       []byte
	next          []byte // its followUps as JSON; nil: none

	durability limits.Durability // of its queue
	layout     string            // its [partition.Layout.Sum] when the partition was chosen; if the tenant moves, [store.Leaves] or [store.Arrives] follows
}

// place is a partition, and the layout by which it was chosen. A request is for one.
type place struct{ home, layout string }

func (a accepted) place() place { return place{a.home, a.layout} }

// queue returns the queue that the job is in.
func (a accepted) queue() string { return partition.QueueOf(a.home) }

// attributesOfLane returns the attributes that scripts make the name of the lane of.
func (a accepted) attributesOfLane() string { return "kind=" + a.kind + ";" + a.attributes }

const acceptedWords = 6

// append adds the job's arguments of enqueue.lua, acceptedWords of them.
func (a accepted) append(args []any) []any {
	return append(args, a.id, a.message, a.tenant, a.attributesOfLane(), a.digest, a.more())
}

// more packs the fields that few jobs set into one argument, "" for other jobs: each
// argument costs Redis 0.3 µs.
func (a accepted) more() string {
	if a.fresh && a.cost == 1 && a.costs == "" && a.band == 1 && a.deadline == 0 && a.due == 0 && a.unique == "" && len(a.next) == 0 {
		return ""
	}
	fresh := 0
	if a.fresh {
		fresh = 1
	}
	return fmt.Sprintf("%d %d %s %d %d %d %s %d %s", fresh, a.cost, a.costs, a.band, a.deadline, a.due, a.unique, a.window, a.next)
}

func (a accepted) size() int { return len(a.message) + len(a.next) }

// accept checks and encodes a job without its follow-ups.
func (job Job) accept(home string, now time.Time) (accepted, error) {
	c, err := job.check(home, now)
	if err != nil {
		return accepted{}, err
	}
	return c.encode()
}

// encode makes the asynq message of a job and its arguments of enqueue.lua.
func (job checked) encode() (accepted, error) {
	a := accepted{
		home: job.home, tenant: rediskey.Escape(job.Tenant), attributes: job.attributes, kind: rediskey.Escape(job.Kind),
		cost: max(job.Cost, 1), costs: job.costs, band: job.Priority.band(), due: job.due,
	}
	retention := job.Retention
	freed := job.KeyUntil == Ended || job.KeyWindow > 0
	if freed {
		a.unique = a.tenant + ":" + rediskey.Escape(job.Key)
		a.window = job.KeyWindow.Microseconds()
	}
	if job.Key == "" || freed {
		id, err := uuid.NewV7()
		if err != nil {
			return accepted{}, fmt.Errorf("make a job id: %w", err)
		}
		a.id, a.fresh = id.String(), true
		if job.parent != nil {
			a.id, a.fresh = job.parent.child, false // the same id when it is enqueued again
		}
	} else {
		// Escaped parts have no ':', so each pair of tenant and key has its own id.
		a.id = a.tenant + ":" + rediskey.Escape(job.Key)
		retention = cmp.Or(retention, keyRetention)
	}
	// The payload is last, and is not quoted: to quote 1 MiB takes longer than all else.
	sum := job.keys.Digest(append(fmt.Appendf(nil, "%q %q ", job.Kind, job.Tenant), job.payload...))
	a.digest = base64.RawURLEncoding.EncodeToString(sum[:12])

	headers := map[string]string{asynqwire.HeaderTenant: job.Tenant}
	maps.Copy(headers, job.Headers)
	job.parent.write(headers, job.keys, encryption.PlaceOf(job.home, a.id, encryption.ParentResult))
	if job.Priority != "" && job.Priority != Normal {
		headers[asynqwire.HeaderPriority] = string(job.Priority)
	}
	if job.Account != AnyAccount {
		headers[asynqwire.HeaderAccount] = string(job.Account)
	}
	if job.MaxAttempts > 0 {
		headers[asynqwire.HeaderMaxAttempts] = strconv.Itoa(job.MaxAttempts)
	}
	if a.cost > 1 {
		headers[asynqwire.HeaderCost] = strconv.FormatInt(a.cost, 10)
	}
	if job.costs != "" {
		headers[asynqwire.HeaderCosts] = job.costs
	}
	if job.attributes != "" {
		headers[asynqwire.HeaderAttributes] = job.attributes
	}
	if !job.Deadline.IsZero() {
		a.deadline = job.Deadline.UnixMicro()
		headers[asynqwire.HeaderDeadline] = strconv.FormatInt(a.deadline, 10)
	}
	if retention > 0 {
		headers[asynqwire.HeaderKept] = "1"
	}
	payload := job.keys.Encrypt(job.payload, encryption.PlaceOf(job.home, a.id, encryption.Payload))
	a.message = asynqwire.Encode(job.home, a.id, job.Kind, payload, headers, retention)
	return a, nil
}

// idempotencyKey returns the key that is passed to providers. They allow 255 characters,
// so a longer id is hashed.
func idempotencyKey(id string) string {
	if len(id) <= 255 {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}
