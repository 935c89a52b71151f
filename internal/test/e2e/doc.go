// Package e2e tests Headgate as users run it: worker and enqueue as processes, a real Redis, and a
// provider that records the time of every call.
package e2e
