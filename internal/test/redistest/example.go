package redistest

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/embedded"
)

// Example starts an embedded Redis for a documentation example, with a worker that serves queue
// sms. The caller must stop it.
func Example() (ctx context.Context, client redis.UniversalClient, stop func()) {
	server, err := embedded.Start(embedded.Options{Miniredis: true})
	if err != nil {
		panic(err)
	}
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		panic(err)
	}
	client = redis.NewClient(options)
	Serve(client, "sms", "sms")
	return context.Background(), client, func() {
		_ = client.Close()
		server.Close()
	}
}
