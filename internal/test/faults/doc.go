// Package faults breaks Redis, workers and receivers under load, and accounts for every job afterwards.
//
// Each scenario is an entry with its fault and its promise. It ends with the account (which jobs the
// receiver got once, which more than once and with which idempotency keys, and where the jobs are that
// it did not get) and with the law for all calls. `make faults` runs all scenarios and writes their
// figures into docs/reliability.md; without -all only the shortest run.
package faults
