package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/internal/jobline"
	"github.com/headgate/headgate/internal/payloads"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/validation"
)

func sendCommand(o *options) *cobra.Command {
	var (
		l          jobline.Line
		attributes []string
		headers    []string
		whole      string
	)
	cmd := &cobra.Command{
		Use:   "send",
		Short: "Enqueue one job",
		Example: `  enqueue send --kind webhook --tenant acme --payload '{"url":"https://example.com/hook","body":{"n":1}}'
  enqueue send --job @job.json`,
		Args: program.NoArgs,
	}
	flags := cmd.Flags()
	texts := map[string]**string{
		"kind": &l.Kind, "tenant": &l.Tenant, "key": &l.Key, "queue": &l.Queue, "priority": &l.Priority,
		"at": &l.At, "in": &l.In, "deadline": &l.Deadline, "key-until": &l.KeyUntil, "key-window": &l.KeyWindow, "retention": &l.Retention,
		"callback": &l.Callback,
	}
	for name := range texts {
		flags.String(name, "", jobline.Usage(fieldOf(name)))
	}
	flags.Int("max-attempts", 0, jobline.Usage("max_attempts"))
	flags.Int64("cost", 0, jobline.Usage("cost"))
	flags.StringArrayVar(&attributes, "attribute", nil, jobline.Usage("attributes")+"; one as NAME=VALUE, repeatable")
	flags.StringToInt64Var(&l.Costs, "costs", nil, jobline.Usage("costs")+"; one as UNIT=N, repeatable")
	flags.StringArrayVar(&headers, "header", nil, jobline.Usage("headers")+"; one as NAME=VALUE, repeatable")
	for _, name := range []string{"payload", "on-success", "on-failure"} {
		flags.String(name, "", jobline.Usage(fieldOf(name))+"; JSON, @FILE, or - for standard input")
	}
	flags.StringVar(&whole, "job", "", "the whole job as JSON with these fields; JSON, @FILE, or - for standard input. Other flags replace its fields")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if flags.Changed("job") {
			costs := l.Costs // of the flag
			text, err := readPayload(cmd.Context(), whole, cmd.InOrStdin())
			if err == nil {
				l, err = jobline.Parse(text)
			}
			if err != nil {
				return &program.UsageError{Err: fmt.Errorf("--job: %w", err)}
			}
			if flags.Changed("costs") {
				l.Costs = costs
			}
		}
		for name, into := range texts {
			if flags.Changed(name) {
				value, _ := flags.GetString(name) // the flag is a string
				*into = &value
			}
		}
		if flags.Changed("max-attempts") {
			n, _ := flags.GetInt("max-attempts")
			l.MaxAttempts = &n
		}
		if flags.Changed("cost") {
			n, _ := flags.GetInt64("cost")
			l.Cost = &n
		}
		var errs [5]error
		if flags.Changed("attribute") || l.Attributes == nil {
			l.Attributes, errs[0] = pairs("--attribute", attributes)
		}
		if flags.Changed("header") || l.Headers == nil {
			l.Headers, errs[1] = pairs("--header", headers)
		}
		checks, stdin := known, ""
		if whole == "-" {
			stdin = "job"
		}
		for i, field := range []struct {
			flag string
			into *json.RawMessage
		}{{"payload", &l.Payload}, {"on-success", &l.OnSuccess}, {"on-failure", &l.OnFailure}} {
			if flags.Changed("job") && !flags.Changed(field.flag) {
				continue
			}
			value, _ := flags.GetString(field.flag) // the flag is a string
			var err error
			if value == "-" && stdin != "" {
				err = fmt.Errorf("--%s reads standard input already; use @FILE", stdin)
			} else {
				*field.into, err = readPayload(cmd.Context(), value, cmd.InOrStdin())
			}
			if value == "-" {
				stdin = field.flag
			}
			if err := cmd.Context().Err(); err != nil {
				return fmt.Errorf("interrupted before the job was enqueued: %w", context.Cause(cmd.Context()))
			}
			if err == nil && field.flag != "payload" && flags.Changed(field.flag) && len(*field.into) == 0 {
				err = errors.New("it is empty; give JSON, @FILE, or -")
			}
			if err != nil {
				errs[2+i] = fmt.Errorf("--%s: %w", field.flag, err)
				if *field.into = nil; field.flag == "payload" {
					l.Payload, checks = json.RawMessage("0"), jobline.Payloads{} // the rest is checked all the same
				}
			}
		}
		job, err := l.Job(checks)
		flags := errors.Join(errs[:]...)
		if err == nil {
			err = job.Validate() // lists all mistakes at once, before Redis is asked
		}
		if err := errors.Join(flags, err); err != nil {
			return &program.UsageError{Err: oneLine(err)}
		}
		return send(cmd.Context(), o, job, cmd.OutOrStdout())
	}
	return cmd
}

// fieldOf returns the field that a flag sets.
func fieldOf(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

// pairs reads the values of a flag that were each given as name=value.
func pairs(flag string, given []string) (map[string]string, error) {
	pairs := make(map[string]string, len(given))
	for _, pair := range given {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("%s: %.60q is not name=value", flag, pair)
		}
		if _, taken := pairs[name]; taken {
			return nil, fmt.Errorf("%s: %.60q is a duplicate", flag, name)
		}
		pairs[name] = value
	}
	return pairs, nil
}

func readPayload(ctx context.Context, payload string, stdin io.Reader) (json.RawMessage, error) {
	text := []byte(payload)
	var err error
	if name, isFile := strings.CutPrefix(payload, "@"); isFile {
		file, openErr := os.Open(name)
		if openErr != nil {
			return nil, openErr
		}
		defer file.Close()
		text, err = readSome(ctx, file)
	} else if payload == "-" {
		text, err = readSome(ctx, stdin)
	}
	if err != nil {
		return nil, err
	}
	if len(text) > 0 && !json.Valid(text) {
		return nil, fmt.Errorf("%.60q is not JSON", text)
	}
	return text, nil
}

// readSome reads what no payload exceeds, and not without end. An interrupt does
// not wait for a pipe that says nothing.
func readSome(ctx context.Context, from io.Reader) ([]byte, error) {
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(from, jobline.MaxLine+1))
		done <- result{text, err}
	}()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case r := <-done:
		if r.err == nil && len(r.text) > jobline.MaxLine {
			r.err = fmt.Errorf("it is larger than %d bytes; store large data elsewhere and enqueue a reference", jobline.MaxLine)
		}
		return r.text, r.err
	}
}

// known is what this program knows of payloads.
var known = jobline.Payloads{Check: payloads.Check, Costs: payloads.Costs}

// receipt is what send prints as JSON.
type receipt struct {
	ID       string `json:"id"`
	Queue    string `json:"queue"`
	State    string `json:"state"`
	Existing bool   `json:"existing"`

	Durability limits.Durability `json:"durability"`

	Unserved string `json:"unserved,omitempty"` // why no worker takes it
	Warning  string `json:"warning,omitempty"`  // what else keeps it from being sent
}

func send(ctx context.Context, o *options, job queue.Job, out io.Writer) error {
	client, err := o.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	r, err := o.client(client).RequireLimits().Enqueue(ctx, job)
	if err != nil {
		if validation.Is(err) {
			return &program.UsageError{Err: oneLine(err)}
		}
		return oneLine(err)
	}
	unserved := ""
	if r.State != lifecycle.StateArchived && r.State != lifecycle.StateCompleted {
		// The job is enqueued, whether or not it can be told who takes it.
		if u, err := inspect.New(client).Unserved(ctx, r.Queue, job.Kind); err == nil && u != nil {
			unserved = u.String()
		}
	}
	warning := ""
	if payload, ok := job.Payload.(json.RawMessage); ok {
		if host := payloads.PrivateHost(job.Kind, payload); host != "" {
			warning = api.PrivateWarning(ctx, client, host)
		}
	}
	if r.Existing && r.State == lifecycle.StateArchived {
		warning = "the job has ended without success; " + sendAgain(r.Queue)
	}
	if o.json {
		return json.NewEncoder(out).Encode(receipt{r.ID, r.Queue, string(r.State), r.Existing, r.Durability, unserved, warning})
	}
	again := ""
	if r.Existing {
		again = ", known already"
	}
	if unserved != "" {
		unserved = "; " + unserved
	}
	if warning != "" {
		unserved += "\nwarning: " + warning
	}
	_, err = fmt.Fprintf(out, "%s in queue %s (%s%s)%s\n", r.ID, r.Queue, word(r.State), again, unserved)
	return err
}

// sendAgain says how archived jobs of a queue are sent again.
func sendAgain(queue string) string {
	return fmt.Sprintf(`"enqueue failures --queue %[1]s" says why, and "enqueue retry --queue %[1]s" sends it again`, queue)
}

// word is a state in words for people.
func word(state lifecycle.State) string {
	if state == lifecycle.StateWaiting {
		return "waiting in its lane"
	}
	return string(state)
}
