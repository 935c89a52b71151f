package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headgate/headgate/internal/auditfile"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/internal/settings"
	"github.com/headgate/headgate/queue/operate"
	"github.com/headgate/headgate/queue/validation"
)

// operator is who changes something, by flags that all changing commands share.
type operator struct {
	queue, actor, reason string
	yes, dry             bool
	file                 *auditfile.File // nil: none
}

func (o *operator) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.queue, "queue", "", "the queue (required)")
	o.reasonFlags(cmd)
}

func (o *operator) reasonFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, recorded in the audit log (required)")
	cmd.Flags().StringVar(&o.actor, "actor", "", "your name, recorded in the audit log as cli:NAME (default: $USER or your user id)")
}

// userName returns the name of the user: $USER, or in containers, where it is often not set,
// the name or the number of the user id.
func userName() string {
	if name := os.Getenv("USER"); name != "" {
		return name
	}
	if known, err := user.Current(); err == nil && known.Username != "" {
		return known.Username
	}
	return fmt.Sprintf("uid %d", os.Getuid())
}

func (o *operator) askFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask for confirmation")
}

func (o *operator) check() error {
	if o.queue == "" {
		return &program.UsageError{Err: errors.New("--queue: name the queue")}
	}
	if o.dry && o.reason == "" {
		o.reason = "-" // nobody has to give a reason for looking
	}
	return o.checkReason()
}

// checkReason completes the actor. Its prefix keeps it apart from the names of API keys.
func (o *operator) checkReason() error {
	if o.reason == "" {
		return &program.UsageError{Err: errors.New("--reason: say why; it is kept in the audit")}
	}
	o.actor = "cli:" + strings.TrimPrefix(cmp.Or(o.actor, userName()), "cli:")
	var err error
	o.file, err = auditFile()
	return err
}

// auditFile opens the file of HEADGATE_AUDIT_FILE; nil: none.
func auditFile() (*auditfile.File, error) {
	return auditfile.Open(os.Getenv(settings.Prefix+"AUDIT_FILE"), slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

func (o *operator) by() operate.Operator {
	return operate.Operator{Actor: o.actor, Reason: o.reason, Log: o.file.Add}
}

// confirm asks on a terminal, and elsewhere wants --yes.
func (o *operator) confirm(cmd *cobra.Command, question string) error {
	if o.yes {
		return nil
	}
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return &program.UsageError{Err: errors.New("there is no terminal to ask on: say --yes, or --dry-run to change nothing")}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	answer, err := readAnswer(cmd.Context(), in)
	if err != nil {
		return err
	}
	if answer != "y" && answer != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}

// readAnswer reads a line; an interrupt does not wait for it.
func readAnswer(ctx context.Context, in io.Reader) (string, error) {
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // without an answer it is no
		lines <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		return "", fmt.Errorf("interrupted, nothing was changed: %w", context.Cause(ctx))
	case line := <-lines:
		return line, nil
	}
}

// wrong tells a mistake in the call from a failure, and from what was done in part.
func wrong(err error) error {
	if validation.Is(err) {
		return &program.UsageError{Err: oneLine(err)}
	}
	if inPart(err) {
		return partialError{err}
	}
	return err
}

// inPart reports whether partitions of a queue did what others did not.
func inPart(err error) bool {
	part, ok := errors.AsType[*operate.PartialError](err)
	return ok && part.Away < part.Partitions
}

// count counts the jobs that a verb would change, and returns the number in words. A partition that does not answer does
// not keep the others from being changed: the error is nil then, and partly says what was not counted.
func (o *operator) count(cmd *cobra.Command, client redis.UniversalClient, verb operate.Verb, filter operate.Filter) (tally operate.Tally, words string, partly, err error) {
	tally, err = operate.Count(cmd.Context(), client, o.queue, verb, filter)
	words = counted(tally.Jobs, "job")
	if err != nil && inPart(err) && cmd.Context().Err() == nil {
		partly, err = partialError{err}, nil
		words = "at least " + words
		if !o.dry {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: %v\n", partly)
		}
	}
	return tally, words, partly, err
}
