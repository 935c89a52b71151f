package store

import (
	"strconv"
	"strings"
)

// WholeQueue is the scope of a pause of all jobs. The other scopes of a pause are a tenant's escaped name, the whole queue, and a kind;
// no escaped name is like the others. Holds have scopes of their own: the account of a
// kind, that of a tenant, one tenant's endpoint, and an endpoint for all.
const WholeQueue = "*"

// KindScope is the scope of a pause of all jobs of a kind.
func KindScope(escapedKind string) string { return "k:" + escapedKind }

// AccountScope is the scope of a hold of the account that all tenants share for a kind.
func AccountScope(escapedKind string) string { return "a:" + escapedKind }

// OwnAccountScope is the scope of a hold of one tenant's account for a kind.
func OwnAccountScope(escapedKind, escapedTenant string) string {
	return "a:" + escapedKind + ";" + escapedTenant
}

// EndpointScope is the scope of a hold of one tenant's jobs for an endpoint.
func EndpointScope(escapedTenant, escapedEndpoint string) string {
	return "e:" + escapedTenant + ";" + escapedEndpoint
}

// HostScope is the scope of a hold of all jobs for an endpoint.
func HostScope(escapedEndpoint string) string { return "h:" + escapedEndpoint }

// PauseScopes are the scopes of pauses that concern a job; all names are escaped.
func PauseScopes(tenant, kind string) []string { return []string{WholeQueue, tenant, KindScope(kind)} }

// HoldScopes are the scopes of holds that concern a job; all names are escaped.
func HoldScopes(tenant, kind, endpoint string) []string {
	scopes := []string{AccountScope(kind), OwnAccountScope(kind, tenant)}
	if endpoint != "" {
		scopes = append(scopes, EndpointScope(tenant, endpoint), HostScope(endpoint))
	}
	return scopes
}

// PausedUntil is the end of a pause, µs since the epoch, as lanes.lua writes it:
// "until_us by reason"; 0 for what is none.
func PausedUntil(text string) int64 {
	first, _, _ := strings.Cut(text, " ")
	micros, _ := strconv.ParseInt(first, 10, 64)
	return micros
}

// Endless is when a pause ends that ends when somebody resumes, µs since the epoch.
const Endless = int64(9e15)
