package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/clients/ai"
	"github.com/headgate/headgate/clients/email"
	"github.com/headgate/headgate/clients/payment"
	"github.com/headgate/headgate/clients/webhook"
	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/internal/server"
	"github.com/headgate/headgate/internal/settings"
	"github.com/headgate/headgate/internal/wait"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/worker"
)

func devCommand() *cobra.Command {
	var (
		lasts     time.Duration
		miniredis bool
		port      int
		addr      string
	)
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Try Headgate: runs a Redis, sandbox providers and demo traffic, without any setup",
		Long: `dev runs everything on loopback only: a Redis (redis-server if installed, otherwise an
imitation), sandbox providers for webhooks, mail, prompts and payments that enforce their own
limits, and tenants that each enqueue more than their limits allow. Once a second it prints
what was sent and what was allowed.

It exits 1 if a provider refused a call, a job failed for good, was called twice or is
unaccounted for, or the providers counted other calls than Redis did. It exits 3 if calls
were refused, but this machine was too busy to tell whose fault that is.`,
		Args: program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case lasts < 0:
				return &program.UsageError{Err: fmt.Errorf("--for: %v must not be negative", lasts)}
			case port < 0 || port > 65535:
				return &program.UsageError{Err: fmt.Errorf("--redis-port: %d must be from 0 to 65535", port)}
			case !api.LoopbackName(addr):
				return &program.UsageError{Err: fmt.Errorf("--http: %q is not an address of this machine alone: use 127.0.0.1:8080", addr)}
			}
			settings.Steady()
			return dev(cmd.Context(), cmd.OutOrStdout(), lasts, addr, embedded.Options{Port: port, Miniredis: miniredis, Apart: apart})
		},
	}
	cmd.Flags().DurationVar(&lasts, "for", 0, "stop after this time (default: until interrupted)")
	cmd.Flags().BoolVar(&miniredis, "miniredis", false, "use the imitation of Redis even if redis-server is installed")
	cmd.Flags().StringVar(&addr, "http", "127.0.0.1:8080", "address of the page and the API; if the port is taken, the next free one")
	cmd.Flags().IntVar(&port, "redis-port", 0, "port of the Redis (default: a free one)")
	return cmd
}

// dev runs the demo on a Redis, against providers and beside a pacer of its own.
func dev(ctx context.Context, out io.Writer, lasts time.Duration, addr string, redisOptions embedded.Options) error {
	store, err := embedded.Start(redisOptions)
	if err != nil {
		return err
	}
	defer store.Close()
	providers, err := startProviders()
	if err != nil {
		return err
	}
	defer providers.close()
	return runDemo(ctx, out, lasts, addr, store, providers)
}

// runDemo is the list of the demo's parts.
func runDemo(ctx context.Context, out io.Writer, lasts time.Duration, addr string, store *embedded.Redis, providers *demoProviders) error {
	options, err := queue.ParseRedisURL(store.URL())
	if err != nil {
		return err
	}
	client := redis.NewUniversalClient(options)
	defer client.Close()
	past := newUnshaped(providers.web)
	page, err := demoPage(client, addr, past)
	if err != nil {
		return err
	}
	defer page.Close()
	providers.describe(out, page.URL(), store.URL(), store.Kind())
	if err := operate.Publish(ctx, client, demoLimits()); err != nil {
		return err
	}
	late, details := &lateness{}, worker.NewDetails(nil)
	runner, err := queue.New(queue.Config{
		Redis: options, Queues: demoKinds, Concurrency: 400, Logger: slog.New(slog.DiscardHandler), Observer: late, Details: details.Read,
	})
	if err != nil {
		return err
	}
	stopClients, err := demoHandlers(runner, providers, details)
	if err != nil {
		return err
	}
	defer stopClients()
	pacer, err := startPacer()
	if err != nil {
		return err
	}

	d := newDemo(client, providers, late, out)
	untilOver, stop := context.WithCancel(ctx)
	defer stop()
	parts, running := errgroup.WithContext(untilOver)
	parts.Go(func() error { return past.run(running) })
	parts.Go(func() error { return runner.Run(running) })
	parts.Go(func() error {
		defer stop()
		// On a busy machine, traffic would keep the imitation of Redis from answering what the worker asks first. And
		// for a second, a page that was asked earlier would say that no worker serves the queues.
		for runner.Ready() != nil {
			if wait.For(running, readyEvery) != nil {
				return nil
			}
		}
		parts.Go(func() error { return page.Run(running) })
		return d.run(running, lasts)
	})
	err = parts.Wait()
	measured, pacerErr := pacer.stop()
	if err := errors.Join(err, pacerErr); err != nil {
		return err
	}
	d.pace = measured
	return d.account(context.WithoutCancel(ctx))
}

// demoPage listens for the page and the API, on this machine alone.
func demoPage(client redis.UniversalClient, addr string, demo api.Demo) (*server.Server, error) {
	web := settings.HTTP{HTTPAddr: addr}
	config := web.Server(client, slog.New(slog.DiscardHandler), nil, nil)
	config.NextFree, config.API.Demo = true, demo
	page, err := server.Open(config)
	if err != nil {
		return nil, fmt.Errorf("--http: %w", cmp.Or(errors.Unwrap(err), err)) // without the variable, which the demo does not read
	}
	return page, nil
}

// demoHandlers registers a client for each of the providers.
func demoHandlers(w *queue.Worker, p *demoProviders, details *worker.Details) (stop func(), err error) {
	host, port := splitPort(p.post.Addr())
	mails, err := email.New(email.Config{Host: host, Port: port, TLS: "none"})
	if err != nil {
		return nil, err
	}
	models, err := ai.New(ai.Config{Provider: "openai", BaseURL: p.models.URL() + "/v1"})
	if err != nil {
		return nil, err
	}
	payments, err := payment.New(payment.Config{Key: "sk_test_demo", URL: p.stripe.URL()})
	if err != nil {
		return nil, err
	}
	details.AllowPrivate()
	webhooks := webhook.New(webhook.Config{AllowPrivate: true})
	handle(w, "webhook", webhooks.Send, queue.RepeatUnknown())
	handle(w, "email", mails.Send)
	handleResult(w, "ai", models.Send, queue.RepeatUnknown())
	handleResult(w, "payment", payments.Send, queue.RepeatUnknown())
	for _, kind := range demoKinds {
		details.AddProvider(kind, nil)
	}
	details.AddQuotas("ai", func() []api.Quota { return quotasOf("", models) })
	return func() {
		webhooks.Close()
		mails.Close()
		models.Close()
		payments.Close()
	}, nil
}
