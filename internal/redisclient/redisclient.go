// Package redisclient opens clients of Redis, and keeps those of a Cluster up to date.
package redisclient

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// New returns a client for the options. One of a Cluster asks for the nodes every second while it is
// used, because a replica may have taken the place of a node: by itself it asks once a minute.
func New(options *redis.UniversalOptions) redis.UniversalClient {
	if options.MasterName != "" || !options.IsClusterMode && len(options.Addrs) < 2 {
		return redis.NewUniversalClient(options)
	}
	cluster := options.Cluster()
	cluster.ClusterStateReloadInterval = time.Second
	return redis.NewClusterClient(cluster)
}

// FindNodes makes any client of a Cluster ask for the nodes after an error that is not an answer.
func FindNodes(ctx context.Context, client redis.UniversalClient, err error) {
	cluster, ok := client.(*redis.ClusterClient)
	if _, answered := errors.AsType[redis.Error](err); ok && !answered {
		cluster.ReloadState(ctx)
	}
}
