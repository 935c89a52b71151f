// Package composetest checks docker-compose.yml and the files it mounts.
//
// It is a module of its own, so that what reads Compose files stays out of
// everybody else's go.sum.
package composetest
