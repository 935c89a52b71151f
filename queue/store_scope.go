package queue

import (
	"strconv"
	"strings"
)

// The scopes of a pause are a tenant's escaped name, the whole queue, and a kind;
// no escaped name is like the others. Holds have scopes of their own: the account of a
// kind, that of a tenant, one tenant's endpoint, and an endpoint for all.
const wholeQueue = "*"

func kindScope(escapedKind string) string { return "k:" + escapedKind }

func accountScope(escapedKind string) string { return "a:" + escapedKind }

func ownAccountScope(escapedKind, escapedTenant string) string {
	return "a:" + escapedKind + ";" + escapedTenant
}

func endpointScope(escapedTenant, escapedEndpoint string) string {
	return "e:" + escapedTenant + ";" + escapedEndpoint
}

func hostScope(escapedEndpoint string) string { return "h:" + escapedEndpoint }

// pauseScopes are those of pauses that concern a job, and of holds; all names are escaped.
func pauseScopes(tenant, kind string) []string { return []string{wholeQueue, tenant, kindScope(kind)} }

func holdScopes(tenant, kind, endpoint string) []string {
	scopes := []string{accountScope(kind), ownAccountScope(kind, tenant)}
	if endpoint != "" {
		scopes = append(scopes, endpointScope(tenant, endpoint), hostScope(endpoint))
	}
	return scopes
}

// pausedUntil is the end of a pause, µs since the epoch, as lanes.lua writes it:
// "until_us by reason"; 0 for what is none.
func pausedUntil(text string) int64 {
	first, _, _ := strings.Cut(text, " ")
	micros, _ := strconv.ParseInt(first, 10, 64)
	return micros
}

// endless is when a pause ends that ends when somebody resumes, µs since the epoch.
const endless = int64(9e15)
