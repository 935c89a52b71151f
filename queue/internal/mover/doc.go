// Package mover takes tenants from one partition of a queue to another one, after the queue got other
// partitions.
//
// A tenant's jobs, what is used of its limits and what else it has in Redis are in one partition at any time.
// So it is moved as a whole, in steps that can each be repeated (move.lua has the states):
//
//  1. It stops: its calls end, and no others begin. Producers still add jobs.
//  2. It has left: the partition takes no more jobs of it. Producers wait.
//  3. Its jobs are taken out of their places, copied to the other partition and deleted, some at a time. A job on
//     its way is in the hash leaving and in no other place, so that nothing finds it twice.
//  4. What is used of its limits and its keys, pauses and overrides are copied and deleted.
//  5. It is there: the other partition takes and calls jobs, and the first one knows that it is gone.
//
// Whatever ends the process in between, the next worker of the queue finds the states and goes on from there.
package mover
