package store

import (
	"strconv"
	"strings"
)

// WholeQueue is the scope of a pause of all jobs. The other scopes of pauses are a
// tenant's escaped name and a kind. Holds have scopes of their own: the account of a
// kind, a tenant's own account, one tenant's endpoint, and an endpoint for all tenants.
// No escaped name looks like another scope.
const WholeQueue = "*"

// KindScope returns the scope of a pause of all jobs of a kind.
func KindScope(escapedKind string) string { return "k:" + escapedKind }

// AccountScope returns the scope of a hold of the account that all tenants share for a
// kind.
func AccountScope(escapedKind string) string { return "a:" + escapedKind }

// OwnAccountScope returns the scope of a hold of one tenant's account for a kind.
func OwnAccountScope(escapedKind, escapedTenant string) string {
	return "a:" + escapedKind + ";" + escapedTenant
}

// EndpointScope returns the scope of a hold of one tenant's jobs for an endpoint.
func EndpointScope(escapedTenant, escapedEndpoint string) string {
	return "e:" + escapedTenant + ";" + escapedEndpoint
}

// HostScope returns the scope of a hold of all jobs for an endpoint.
func HostScope(escapedEndpoint string) string { return "h:" + escapedEndpoint }

// MoveScope returns the scope of a tenant that moves to another partition.
func MoveScope(escapedTenant string) string { return "m:" + escapedTenant }

// PauseScopes returns the scopes of pauses that concern a job. All names are escaped.
func PauseScopes(tenant, kind string) []string {
	return []string{WholeQueue, tenant, KindScope(kind), MoveScope(tenant)}
}

// HoldScopes returns the scopes of holds that concern a job. All names are escaped.
func HoldScopes(tenant, kind, endpoint string) []string {
	scopes := []string{AccountScope(kind), OwnAccountScope(kind, tenant)}
	if endpoint != "" {
		scopes = append(scopes, EndpointScope(tenant, endpoint), HostScope(endpoint))
	}
	return scopes
}

// PausedUntil returns the end of a pause, µs since the epoch, from its text: "until_us by
// reason". It returns 0 if the text has another form.
func PausedUntil(text string) int64 {
	first, _, _ := strings.Cut(text, " ")
	micros, _ := strconv.ParseInt(first, 10, 64)
	return micros
}

// Endless is the end of a pause that lasts until it is resumed, µs since the epoch.
const Endless = int64(9e15)
