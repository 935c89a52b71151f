// Package partition has the rules by which one queue, or one limit, can be spread over several
// Redis. It does no I/O and has no clock. The simulation in bench/scale runs the same code.
//
//   - [Layout] says which partition of a queue has a tenant, and how partitions are called.
//   - [Ledger] leases the permits of a shared limit to the partitions, or to queues. There is
//     one for each limit.
//   - [Holder] models what one partition has of a limit, and spends. Queues do not use it: there, the
//     bucket of a leased limit in limits.lua does the same, step by step, and tests compare the two.
//
// # Why the law holds
//
// A rate is a timeline, on which each permit takes the time that it needs to flow back. This is
// the timeline of limits.lua, on which a bucket's theoretical arrival time moves. A lease of a
// rate is a part of it, a [Span]. A call takes the next permits of a span, which begin at x. It
// leaves at x at the latest, and no more than the burst before x. So the calls of any window
// begin in a part of the timeline that is longer than the window by the burst: they are at most
// burst + rate × window, whoever sends them. (Moments are whole µs, rounded up, as in
// limits.lua.) Only two things are needed for that:
//
//   - No part of the timeline is leased twice. The ledger moves forward, and what was given back
//     is leased again only as it left the account of its holder.
//   - A call leaves in its slot, or it does not leave. The holder's clock must be one that never
//     stops, so a process that was stopped finds that its permits are over.
//
// A quota is a number of permits of a window, and a lease is a part of the number. A lease of a
// concurrency limit is a number of calls until a moment, and no call begins that could end
// later.
//
// Of a pool, a token bucket whose calls may take many permits and give some back, a lease is a number of
// permits, too. Until their calls have left, they have their room in the bucket: what it holds and what is
// leased is never more than the burst, so no window has more than that and what flowed back in it.
//
// # Why faults do not break it
//
// Each holder has an account with a version. An ask takes effect only if it has the account's
// current version, and each effect makes a new one. The answer is always the whole account.
//
//   - A lost answer: the next one has what it had. The ask that follows was not meant for this
//     version, and changes nothing.
//   - An ask that comes twice or late: its version is over.
//   - What is given back is not spent from the moment at which the ask is made, whether or not it
//     arrives. Only an answer of a newer version can bring it back, and then no ask that is still
//     on its way can give it away.
//   - A holder that dies: its next life has another ID and another account, and does not get what
//     the last one had. Of a rate this passes by itself; of a quota it is lost until the window
//     ends, because nobody knows what was spent, and of a pool as if it was; calls at once come back
//     when the lease ends.
//   - A holder that hangs: of a pool, what it had counts as spent when its lease ends. When it asks again, what it
//     had not spent comes back, but no more than the bucket lacked ever since: had it come back then, the rest
//     would have found no room.
//   - A ledger that was lost, or that a failover set back: [Ledger.Lost] leases nothing that may
//     be leased already.
//
// Two things are left to the caller. The ledger must be stored before its answer is used. And
// holders must know the ledger's clock: what they are wrong by adds to the law's tolerance.
package partition
