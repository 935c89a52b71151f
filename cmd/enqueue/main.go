// Command enqueue hands jobs to Headgate and tells what becomes of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/internal/redisclient"
	"github.com/headgate/headgate/internal/settings"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/encryption"
)

func main() { program.Main(root()) }

// partialError means that only a part of the work was done.
type partialError struct{ error }

// ExitCode is the program's exit code.
func (partialError) ExitCode() int { return 3 }

// options are what all commands share.
type options struct {
	redisURL string
	json     bool
	fullAt   float64 // part of Redis's maxmemory from which new jobs are refused
	keys     *encryption.Keys
}

func root() *cobra.Command {
	var o options
	root := group(&cobra.Command{
		Use:   "enqueue",
		Short: "Enqueue jobs, watch them and operate queues",
		Long: `enqueue adds jobs to Headgate's queues, shows their state, and lets operators pause, cancel,
retry or run jobs and change limits. Each change needs a reason; "enqueue audit" lists them.

Exit codes: 0 success, 1 failure, 2 a mistake in the arguments or in the job, 3 partly done:
some lines were rejected, some queues did not answer, or the command was interrupted or lost
Redis half-way.`,
	}, sendCommand(&o), bulkCommand(&o), statusCommand(&o), tenantsCommand(&o), limitsCommand(&o),
		pauseCommand(&o), resumeCommand(&o), unregisterCommand(&o), auditCommand(&o), periodicCommand(&o), explainCommand(&o), conformanceCommand(&o), failuresCommand(&o), jobsCommand(&o), workersCommand(&o), estimateCommand(&o), endpointsCommand(&o), serveCommand(&o), program.HealthcheckCommand(`"enqueue serve"`, program.Read[serveConfig]), keysCommand(&o))
	root.AddCommand(verbCommands(&o)...)
	program.Strict(root)
	root.PersistentFlags().StringVar(&o.redisURL, "redis", "", "URL of Redis, such as redis://127.0.0.1:6379 [$HEADGATE_REDIS_URL]")
	root.PersistentFlags().BoolVar(&o.json, "json", false, "print JSON")
	return root
}

// group makes cmd a command that only has subcommands: without one it prints its help, and a
// misspelled one is a usage error.
func group(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(subcommands...)
	cmd.Args = cobra.ArbitraryArgs // so that a misspelled subcommand comes to RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		var names []string
		for _, command := range cmd.Commands() {
			names = append(names, command.Name())
		}
		return &program.UsageError{Err: fmt.Errorf("there is no command %.60q%s", args[0], check.Suggest(args[0], names))}
	}
	return cmd
}

// client enqueues jobs as the settings say. connect has read them.
func (o *options) client(redis redis.UniversalClient) *queue.Client {
	return queue.NewClient(redis).FullAt(o.fullAt).Encrypt(o.keys)
}

// connect opens the Redis that the flag or the environment names.
func (o *options) connect(ctx context.Context) (redis.UniversalClient, error) {
	var environment struct {
		RedisURL string `env:"REDIS_URL" envDefault:"redis://127.0.0.1:6379"`
		settings.Enqueue
	}
	if err := settings.ReadEnv(&environment); err != nil {
		return nil, &program.UsageError{Err: err}
	}
	var problems settings.Problems
	environment.Check(problems.Wrong)
	keys, err := environment.EncryptionKeys()
	if err := errors.Join(append(problems, err)...); err != nil {
		return nil, &program.UsageError{Err: err}
	}
	o.fullAt, o.keys = environment.FullAt(), keys
	url, from := environment.RedisURL, settings.Prefix+"REDIS_URL"
	if o.redisURL != "" {
		url, from = o.redisURL, "--redis"
	}
	where, err := queue.ParseRedisURL(url)
	if err != nil {
		return nil, &program.UsageError{Err: fmt.Errorf("%s: %w", from, err)}
	}
	client := redisclient.New(where)
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := client.Ping(bounded).Err(); err != nil {
		client.Close()
		return nil, fmt.Errorf("no Redis answers at %s (%s): %w", strings.Join(where.Addrs, ","), from, err)
	}
	return client, nil
}
