// Package composetest checks docker-compose.yml and the files it mounts.
//
// It is a separate module, so that the library for Compose files is not in the main go.sum.
package composetest
