package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/clients/email"
	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/clients/webhook"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/throttle"
)

func devCommand() *cobra.Command {
	var (
		lasts     time.Duration
		miniredis bool
		port      int
	)
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Try it: a Redis of its own, sandbox providers, demo traffic; needs nothing",
		Long: `dev runs everything in one process, on loopback alone: a Redis (redis-server
where there is one, else one in this process), an HTTP and an SMTP provider that
police their own limits, and traffic of three tenants, each wanting more than
its limit. Once a second it says what went out and what was allowed.

It exits 1 if a provider saw a violation or a job is unaccounted for.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if lasts < 0 || port < 0 || port > 65535 {
				return usageError{errors.New("--for and --redis-port must not be negative, and a port ends at 65535")}
			}
			steady()
			return dev(cmd.Context(), cmd.OutOrStdout(), lasts, embedded.Options{Port: port, Miniredis: miniredis})
		},
	}
	cmd.Flags().DurationVar(&lasts, "for", 0, "end by itself after this long (default: until interrupted)")
	cmd.Flags().BoolVar(&miniredis, "miniredis", false, "use the Redis in this process even where there is a redis-server")
	cmd.Flags().IntVar(&port, "redis-port", 0, "port of the Redis (default: a free one)")
	return cmd
}

// demoTenant is one source of demo traffic, and what its provider allows it.
type demoTenant struct {
	name, kind string
	rate       int64 // calls a second
}

var demoTenants = []demoTenant{
	{"acme", "webhook", 50},
	{"globex", "webhook", 25},
	{"initech", "email", 20},
}

// demoLimits are those of the demo's tenants, and 10/s for any other: what a
// second terminal enqueues is shaped, too.
func demoLimits() queue.Limits {
	own := func() []queue.Limit {
		return []queue.Limit{{Per: []string{"tenant"}, Limit: throttle.Limit{
			Name: "tenant", Algorithm: throttle.TokenBucket, Rate: throttle.PerSecond(10),
		}}}
	}
	limits := queue.Limits{
		Queues: map[string]queue.QueueLimits{
			"webhook": {Kinds: []string{"webhook"}, Limits: own()},
			"email":   {Kinds: []string{"email"}, Limits: own()},
		},
		Tenants: map[string]queue.TenantLimits{},
	}
	for _, t := range demoTenants {
		rate := throttle.PerSecond(t.rate)
		limits.Tenants[t.name] = queue.TenantLimits{Limits: map[string]map[string]queue.Change{t.kind: {"tenant": {Rate: &rate}}}}
	}
	return limits
}

// dev is the list of the demo's parts.
func dev(ctx context.Context, out io.Writer, lasts time.Duration, redisOptions embedded.Options) error {
	server, err := embedded.Start(redisOptions)
	if err != nil {
		return err
	}
	defer server.Close()
	web, err := sandbox.NewHTTP()
	if err != nil {
		return err
	}
	defer web.Close()
	post, err := sandbox.NewSMTP()
	if err != nil {
		return err
	}
	defer post.Close()
	for _, t := range demoTenants {
		// One more at once than is sent: a call that this machine holds up on its
		// way arrives together with the next.
		web.SetLimit(t.name, sandbox.Limit{Rate: float64(t.rate), Burst: 2})
		post.SetLimit(t.name, sandbox.Limit{Rate: float64(t.rate), Burst: 2})
	}
	fmt.Fprintf(out, `Headgate, to try out. Everything here is on this machine and gone when it ends.

  Redis     %s   (%s)
  webhooks  %s       allows acme 50/s, globex 25/s
  mail      smtp://%s       allows initech 20/s

From a second terminal:
  go run ./cmd/enqueue send --redis %s --kind webhook --tenant you --payload '{"url":"%s/hello"}'
  go run ./cmd/enqueue status --redis %s

`, server.URL(), server.Kind(), web.URL(), post.Addr(), server.URL(), web.URL(), server.URL())

	options, err := queue.ParseRedisURL(server.URL())
	if err != nil {
		return err
	}
	client := redis.NewUniversalClient(options)
	defer client.Close()
	if err := queue.Publish(ctx, client, demoLimits()); err != nil {
		return err
	}
	worker, err := queue.New(queue.Config{Redis: options, Queues: []string{"webhook", "email"}, Concurrency: 400, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	webhooks := webhook.New(webhook.Config{AllowPrivate: true})
	defer webhooks.Close()
	host, port := splitPort(post.Addr())
	mails, err := email.New(email.Config{Host: host, Port: port, TLS: "none"})
	if err != nil {
		return err
	}
	defer mails.Close()
	handle(worker, "webhook", webhooks.Send, queue.RepeatUnknown())
	handle(worker, "email", mails.Send)

	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(running) }()
	d := &demo{client: client, enqueue: queue.NewClient(client), web: web, post: post, out: out, began: time.Now()}
	demoErr := d.run(ctx, lasts, ended)
	stop()
	if err := errors.Join(demoErr, <-ended); err != nil {
		return err
	}
	return d.account(context.WithoutCancel(ctx))
}
