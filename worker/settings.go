package worker

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/dashboard/metrics"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/internal/settings"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/limitsfile"
)

// Settings are the settings that all worker programs have. [Main] reads them from the
// environment variables HEADGATE_… and from flags.
type Settings struct {
	RedisURL        string        `env:"REDIS_URL" envDefault:"redis://127.0.0.1:6379" flag:"redis" help:"Redis: redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://"`
	LimitsFile      string        `env:"LIMITS_FILE" flag:"limits" help:"limits file; reloaded when it changes. Empty: the limits in Redis stay in effect"`
	Queues          []string      `env:"QUEUES" flag:"queues" help:"queues to serve. Empty: those of the limits file"`
	Concurrency     int           `env:"CONCURRENCY" envDefault:"1000" flag:"concurrency" help:"max jobs held by the worker, waiting for their slot or being sent"`
	MetricsTenants  string        `env:"METRICS_TENANTS" flag:"metrics-tenants" help:"tenants with series of their own in /metrics: top:N by backlog, or list:NAME,NAME. Empty: none"`
	LogFormat       string        `env:"LOG_FORMAT" envDefault:"text" flag:"log-format" help:"text or json"`
	ShutdownTimeout time.Duration `env:"SHUTDOWN_TIMEOUT" envDefault:"30s" flag:"shutdown-timeout" help:"how long calls in flight may take at shutdown"`

	settings.HTTP
}

// Validate reports the invalid settings, each by the name of its variable.
func (s Settings) Validate() error {
	var problems settings.Problems
	wrong := problems.Wrong
	if _, err := queue.ParseRedisURL(s.RedisURL); err != nil {
		wrong("REDIS_URL", "%w", err)
	}
	if s.Concurrency < 1 || s.Concurrency > 100_000 {
		wrong("CONCURRENCY", "%d must be 1 to 100000", s.Concurrency)
	}
	if _, err := metrics.ParseTenants(s.MetricsTenants); err != nil {
		wrong("METRICS_TENANTS", "%w", err)
	}
	settings.CheckLogFormat(s.LogFormat, wrong)
	if s.ShutdownTimeout <= 0 {
		wrong("SHUTDOWN_TIMEOUT", "%v is not longer than 0", s.ShutdownTimeout)
	}
	s.HTTP.Check(wrong)
	return errors.Join(problems...)
}

// limits reads the limits file. It returns no limits if there is no file.
func (s Settings) limits() (limits.Set, error) {
	if s.LimitsFile == "" {
		return limits.Set{}, nil
	}
	return limitsfile.Load(s.LimitsFile)
}

// served returns the queues to serve: by default those of the limits file.
func (s Settings) served(set limits.Set) ([]string, error) {
	if len(s.Queues) > 0 {
		return s.Queues, nil
	}
	if len(set.Queues) == 0 {
		return nil, &program.UsageError{Err: errors.New("no queue to serve: set HEADGATE_LIMITS_FILE to a limits file, or HEADGATE_QUEUES")}
	}
	return slices.Sorted(maps.Keys(set.Queues)), nil
}
