// Package e2e tests Headgate as its users run it: worker and enqueue as
// processes, a real Redis, and a provider that keeps the time of every call.
package e2e
