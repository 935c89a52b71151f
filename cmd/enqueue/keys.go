package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/throttle"
)

func keysCommand(o *options) *cobra.Command {
	return group(&cobra.Command{
		Use:   "keys",
		Short: "Create keys for the HTTP API",
	}, keysNewCommand(o))
}

// keyEntry is a key as the file of keys has it.
type keyEntry struct {
	ID            string   `yaml:"id" json:"id"`
	Hash          string   `yaml:"hash" json:"hash"`
	Scopes        []string `yaml:"scopes,flow" json:"scopes"`
	Tenants       []string `yaml:"tenants,flow,omitempty" json:"tenants,omitempty"`
	Queues        []string `yaml:"queues,flow,omitempty" json:"queues,omitempty"`
	Kinds         []string `yaml:"kinds,flow,omitempty" json:"kinds,omitempty"`
	From          []string `yaml:"from,flow,omitempty" json:"from,omitempty"`
	SharedAccount bool     `yaml:"shared_account,omitempty" json:"shared_account,omitempty"`
	MaxRetention  string   `yaml:"max_retention,omitempty" json:"max_retention,omitempty"`
	Rate          string   `yaml:"rate,omitempty" json:"rate,omitempty"`
	Expires       string   `yaml:"expires,omitempty" json:"expires,omitempty"`
}

func keysNewCommand(o *options) *cobra.Command {
	var entry keyEntry
	var lasts, retention time.Duration
	cmd := &cobra.Command{
		Use:   "new --id NAME --scope SCOPE",
		Short: "Create a key and print it once",
		Long: `new creates a key and prints it, with an entry for the keys file that HEADGATE_API_KEYS_FILE
names. The entry has only a hash of the key. The key is shown only once. Store it now.

Scopes: enqueue (enqueue jobs, and estimate), read (see queues, jobs and the audit), operate
(cancel, retry and delete jobs, pause tenants, and lower limits), admin (also what affects
other tenants: run jobs beyond limits, raise limits, pause queues and kinds; it includes the
others). A key with tenants, queues or kinds has access to these only. Jobs of a key
with tenants are called with the tenants' own accounts of a provider, unless --shared-account
lets them use the worker's.`,
		Example: "  enqueue keys new --id shop --scope enqueue --tenant acme --kind email --from mail.acme.example\n  enqueue keys new --id ops --scope admin --for 2160h",
		Args:    program.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if retention != 0 {
				entry.MaxRetention = retention.String()
			}
			return newKey(cmd, o, entry, lasts, retention)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&entry.ID, "id", "", "name of the key, for the audit and the request limits (required)")
	flags.StringSliceVar(&entry.Scopes, "scope", nil, "enqueue, read, operate or admin; repeatable (required)")
	flags.StringArrayVar(&entry.Tenants, "tenant", nil, "tenant that the key has access to; repeatable (default: all)")
	flags.StringArrayVar(&entry.Queues, "queue", nil, "queue that the key has access to; repeatable (default: all)")
	flags.StringArrayVar(&entry.Kinds, "kind", nil, "kind of job that the key has access to; repeatable (default: all)")
	flags.StringArrayVar(&entry.From, "from", nil, "domain that mail may be sent from; repeatable (default: any)")
	flags.BoolVar(&entry.SharedAccount, "shared-account", false, "let jobs of a key with tenants use the worker's account of a provider (default: only tenants' own accounts)")
	flags.DurationVar(&retention, "max-retention", 0, "longest retention of a job, such as 168h (default: that of its queue)")
	flags.StringVar(&entry.Rate, "rate", "", "request limit of the key, such as 100/s (default: that of the server)")
	flags.DurationVar(&lasts, "for", 0, "how long the key is valid, such as 2160h (default: until its entry is removed)")
	return cmd
}

func newKey(cmd *cobra.Command, o *options, entry keyEntry, lasts, retention time.Duration) error {
	secret, hash := api.NewKey()
	key := api.Key{ID: entry.ID, Hash: hash, Tenants: entry.Tenants, Queues: entry.Queues, Kinds: entry.Kinds, From: entry.From, SharedAccount: entry.SharedAccount, MaxRetention: retention}
	for _, scope := range entry.Scopes {
		key.Scopes = append(key.Scopes, api.Scope(scope))
	}
	if entry.Rate != "" {
		rate, err := throttle.ParseRate(entry.Rate)
		if wrong, ok := errors.AsType[*throttle.FieldError](err); ok {
			return &program.UsageError{Err: fmt.Errorf("--rate: %s", wrong.Reason)}
		}
		key.Rate = rate
	}
	if cmd.Flags().Changed("for") {
		if lasts <= 0 {
			return &program.UsageError{Err: fmt.Errorf("--for: %v is not a time ahead", lasts)}
		}
		key.Expires = time.Now().Add(lasts).UTC().Truncate(time.Second)
		entry.Expires = key.Expires.Format(time.RFC3339)
	}
	if err := key.Validate(); err != nil {
		text := oneLine(err).Error()
		for field, flag := range map[string]string{"id: ": "--id: ", "scopes: ": "--scope: ", "tenants: ": "--tenant: ", "queues: ": "--queue: ", "kinds: ": "--kind: ", "from: ": "--from: ", "shared_account: ": "--shared-account: ", "max_retention: ": "--max-retention: ", "rate: ": "--rate: "} {
			text = strings.ReplaceAll(text, field, flag)
		}
		return &program.UsageError{Err: errors.New(text)}
	}
	entry.Hash = hash.String()
	if o.json {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"key": secret, "entry": entry})
	}
	text, err := yaml.Marshal([]keyEntry{entry})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "key: %s\n\nIt is not shown again. Its entry for the file of keys, under \"keys:\":\n\n%s", secret, indent(string(text)))
	return err
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ") + "\n"
}
