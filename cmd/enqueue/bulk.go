package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headgate/headgate/internal/jobline"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/lifecycle"
	"github.com/headgate/headgate/queue/validation"
)

type bulkFlags struct {
	format, kind, tenant, rejected string
}

func bulkCommand(o *options) *cobra.Command {
	var f bulkFlags
	cmd := &cobra.Command{
		Use:   "bulk [FILE|-]",
		Short: "Enqueue many jobs from NDJSON or CSV",
		Long: `bulk enqueues a job for each line of a file, or of standard input.

NDJSON: one object per line with the fields below.
CSV: the header names the same fields. Columns such as payload.NAME, attributes.NAME and
headers.NAME build objects of strings. Empty cells are left out.

Rejected lines are written to FILE.rejected, with the reason. A line without a key gets
one derived from its content, so running the same file again enqueues no job twice while
its jobs exist, and for a day after they completed.

Fields:
` + fieldsHelp(),
		Example: "  enqueue bulk jobs.ndjson\n  zcat jobs.csv.gz | enqueue bulk --format csv -",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return &program.UsageError{Err: fmt.Errorf("bulk takes one file, got %d", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			name := "-"
			if len(args) == 1 {
				name = args[0]
			}
			return bulk(cmd, o, name, f)
		},
	}
	cmd.Flags().StringVar(&f.format, "format", "auto", "ndjson, csv, or auto: by the extension of the file")
	cmd.Flags().StringVar(&f.kind, "kind", "", "kind of lines without one")
	cmd.Flags().StringVar(&f.tenant, "tenant", "", "tenant of lines without one")
	cmd.Flags().StringVar(&f.rejected, "rejected", "", "file for rejected lines (default FILE.rejected, or enqueue.rejected)")
	return cmd
}

// fieldsHelp lists the fields of a job.
func fieldsHelp() string {
	var b strings.Builder
	for _, f := range jobline.Fields {
		fmt.Fprintf(&b, "  %-13s %s\n", f.Name, jobline.Usage(f.Name))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func bulk(cmd *cobra.Command, o *options, name string, f bulkFlags) error {
	switch f.format {
	case "ndjson", "csv":
	case "auto":
		f.format = "ndjson"
		if strings.EqualFold(filepath.Ext(name), ".csv") {
			f.format = "csv"
		}
	default:
		return &program.UsageError{Err: fmt.Errorf("--format: %.20q is not one of ndjson, csv, auto", f.format)}
	}
	input, size, rejectedPath := cmd.InOrStdin(), int64(-1), "enqueue.rejected"
	var info os.FileInfo
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return &program.UsageError{Err: err}
		}
		defer file.Close()
		if info, err = file.Stat(); err != nil {
			return err
		}
		if info.IsDir() {
			return &program.UsageError{Err: fmt.Errorf("%s is a folder", name)}
		}
		// Beside a pipe, such as <(command), there is no place for a file.
		if input = file; info.Mode().IsRegular() {
			size, rejectedPath = info.Size(), name+".rejected"
		}
	}
	if f.rejected != "" {
		rejectedPath = f.rejected
	}
	rejects, err := newRejects(rejectedPath, info)
	if err != nil {
		return &program.UsageError{Err: fmt.Errorf("--rejected: %w", err)}
	}
	defer rejects.abandon()
	client, err := o.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer client.Close()
	bar := newBar(cmd.ErrOrStderr(), size, o.json)
	run := &bulkRun{
		client: o.client(client).RequireLimits(), flags: f, rejects: rejects,
		seen: map[[16]byte]uint32{}, began: time.Now(),
	}
	runErr := run.all(cmd.Context(), jobline.NewSource(io.TeeReader(input, bar), f.format))
	_ = bar.Finish() // a bar that cannot be drawn is no failure
	if _, ok := errors.AsType[jobline.HeaderError](runErr); ok {
		return &program.UsageError{Err: runErr} // no line was read
	}
	keepErr := rejects.keep()
	if err := run.tell(cmd.OutOrStdout(), o.json); err != nil {
		return err
	}
	if runErr != nil {
		err := oneLine(errors.Join(fmt.Errorf("stopped after line %d: %w; running the same file again is safe", run.last, runErr), keepErr))
		if run.Accepted+run.Existing+run.Rejected > 0 || cmd.Context().Err() != nil {
			return partialError{err}
		}
		return err
	}
	if keepErr != nil {
		return oneLine(keepErr)
	}
	if run.Rejected > 0 {
		return partialError{fmt.Errorf("%d of %d lines were rejected: see %s", run.Rejected, run.Lines, rejectedPath)}
	}
	return nil
}

// newBar is a progress bar on a terminal, and nothing anywhere else.
func newBar(out io.Writer, size int64, quiet bool) *progressbar.ProgressBar {
	file, ok := out.(*os.File)
	if quiet || !ok || !term.IsTerminal(int(file.Fd())) {
		return progressbar.DefaultBytesSilent(size)
	}
	return progressbar.NewOptions64(size, progressbar.OptionSetWriter(out), progressbar.OptionShowBytes(true),
		progressbar.OptionSetDescription("enqueueing"), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
}

// bulkRun is the work and the books of one bulk.
type bulkRun struct {
	Lines    int      `json:"lines"`
	Accepted int      `json:"accepted"`
	Existing int      `json:"existing"`          // known from an earlier run
	Archived int      `json:"existing_archived"` // of these, jobs that ended without success
	Rejected int      `json:"rejected"`
	Reasons  []string `json:"reasons,omitempty"` // the first few
	Seconds  float64  `json:"seconds"`

	client  *queue.Client
	flags   bulkFlags
	rejects *rejects
	failed  string              // queue of an archived job that was known already
	seen    map[[16]byte]uint32 // how often the same line came, by its digest
	last    int                 // the last line up to which all were dealt with
	began   time.Time
}

const (
	bulkBatch      = 500             // lines; the client sends 100 at a time
	bulkBatchBytes = 4 << 20         // so that long lines do not pile up
	bulkIdle       = time.Second / 5 // a pipe that pauses gets what it wrote enqueued
)

// read is what the reader of the input hands over.
type read struct {
	entry jobline.Entry
	err   error // io.EOF after the last entry
}

func (b *bulkRun) all(ctx context.Context, lines jobline.Source) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Reading stands in a goroutine because a pipe may block for ever. Nobody
	// waits for it then: an interrupt ends the program instead.
	reads := make(chan read, 16)
	go func() {
		for {
			e, err := lines.Next()
			select {
			case reads <- read{e, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	idle := time.NewTimer(bulkIdle)
	defer idle.Stop()
	var batch []jobline.Entry
	var bytes int
	flush := func() error {
		err := b.flush(ctx, batch)
		batch, bytes = batch[:0], 0
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted: %w", context.Cause(ctx))
		case <-idle.C:
			if err := flush(); err != nil {
				return err
			}
			idle.Reset(bulkIdle)
		case r := <-reads:
			if errors.Is(r.err, io.EOF) {
				return flush()
			}
			if r.err != nil {
				return errors.Join(flush(), r.err)
			}
			b.Lines++
			batch, bytes = append(batch, b.complete(r.entry, lines)), bytes+len(r.entry.Input)
			if len(batch) == bulkBatch || bytes >= bulkBatchBytes {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
}

// complete gives a line what flags and its own content say about it.
func (b *bulkRun) complete(e jobline.Entry, lines jobline.Source) jobline.Entry {
	if e.Err != nil {
		return e
	}
	e.Line.FillIn(b.flags.kind, b.flags.tenant)
	if e.Line.Key == nil {
		key := b.keyOf(lines.Header(), e.Input)
		e.Line.Key = &key
	}
	return e
}

// keyOf makes the key of a line without one: the same for the same line at the
// same occurrence, however often the file is run.
func (b *bulkRun) keyOf(header, input string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %s", b.flags.kind, b.flags.tenant, header, input))
	digest := [16]byte(sum[:])
	b.seen[digest]++
	return "line-" + hex.EncodeToString(digest[:]) + "-" + strconv.Itoa(int(b.seen[digest]))
}

// flush enqueues a batch and enters what became of each line, in their order.
func (b *bulkRun) flush(ctx context.Context, batch []jobline.Entry) error {
	var jobs []queue.Job
	var at []int // places in the batch
	for i := range batch {
		if batch[i].Err != nil {
			continue
		}
		job, err := batch[i].Line.Job(known)
		if err != nil {
			batch[i].Err = err
			continue
		}
		jobs, at = append(jobs, job), append(at, i)
	}
	results := make([]queue.Result, len(batch))
	for i, result := range b.client.EnqueueMany(ctx, jobs) {
		results[at[i]] = result
	}
	var stop error
	for i, e := range batch {
		err := cmp.Or(e.Err, results[i].Err)
		switch {
		case err == nil && results[i].Existing:
			b.Existing++
			if results[i].Receipt.State == lifecycle.StateArchived {
				b.Archived++
				b.failed = results[i].Receipt.Queue
			}
		case err == nil:
			b.Accepted++
		case e.Err != nil, validation.Is(err), errors.Is(err, queue.ErrConflict), errors.Is(err, queue.ErrBacklogFull):
			if err := b.reject(e, err); err != nil {
				return err
			}
		case stop == nil:
			stop = err
		}
		if stop == nil {
			b.last = e.Number
		}
	}
	return stop
}

func (b *bulkRun) reject(e jobline.Entry, reason error) error {
	b.Rejected++
	text := oneLine(reason).Error()
	if len(b.Reasons) < 5 {
		b.Reasons = append(b.Reasons, fmt.Sprintf("line %d: %s", e.Number, text))
	}
	return b.rejects.add(rejectedLine{e.Number, text, e.Input})
}

func (b *bulkRun) tell(out io.Writer, asJSON bool) error {
	b.Seconds = time.Since(b.began).Seconds()
	if asJSON {
		return json.NewEncoder(out).Encode(b)
	}
	for _, reason := range b.Reasons {
		fmt.Fprintln(out, reason)
	}
	_, err := fmt.Fprintf(out, "%d accepted, %d known already, %d rejected in %.1f s (%.0f/s)\n",
		b.Accepted, b.Existing, b.Rejected, b.Seconds, float64(b.Lines)/b.Seconds)
	if err == nil && b.Archived > 0 {
		which := fmt.Sprintf("%d of the known jobs are", b.Archived)
		if b.Archived == b.Existing {
			which = "all known jobs are"
		}
		_, err = fmt.Fprintf(out, "%s archived; for example, %s\n", which, sendAgain(b.failed))
	}
	return err
}
