package main

import (
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

	"github.com/headgate/headgate/queue"
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

NDJSON: one object a line with the fields kind, tenant, key, queue, priority, at,
in, deadline, max_attempts, cost, attributes and payload. CSV: a header names the
same fields; columns payload.NAME and attributes.NAME build objects.

Lines that are rejected go to FILE.rejected with the reason. A line without a key
gets one made from its content, so running the same file again enqueues nothing
twice while its jobs live and for a day after.`,
		Example: "  enqueue bulk jobs.ndjson\n  zcat jobs.csv.gz | enqueue bulk --format csv -",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{fmt.Errorf("bulk takes one file, got %d", len(args))}
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
	cmd.Flags().StringVar(&f.format, "format", "auto", "ndjson, csv, or auto: by the file's ending")
	cmd.Flags().StringVar(&f.kind, "kind", "", "kind of lines that name none")
	cmd.Flags().StringVar(&f.tenant, "tenant", "", "tenant of lines that name none")
	cmd.Flags().StringVar(&f.rejected, "rejected", "", "where rejected lines go (default FILE.rejected, or enqueue.rejected)")
	return cmd
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
		return usageError{fmt.Errorf("--format: %.20q is none of ndjson, csv, auto", f.format)}
	}
	input, size, rejectedPath := cmd.InOrStdin(), int64(-1), "enqueue.rejected"
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return usageError{err}
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return err
		}
		if info.IsDir() {
			return usageError{fmt.Errorf("%s is a folder", name)}
		}
		input, size, rejectedPath = file, info.Size(), name+".rejected"
	}
	if f.rejected != "" {
		rejectedPath = f.rejected
	}
	client, err := o.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer client.Close()
	bar := newBar(cmd.ErrOrStderr(), size, o.json)
	lines, err := newSource(io.TeeReader(input, bar), f.format)
	if err != nil {
		return usageError{err}
	}
	rejects := &rejects{path: rejectedPath}
	defer rejects.abandon()
	run := &bulkRun{client: queue.NewClient(client), flags: f, rejects: rejects, seen: map[string]int{}, began: time.Now()}
	runErr := run.all(cmd.Context(), lines)
	_ = bar.Finish() // a bar that cannot be drawn is no failure
	if err := rejects.keep(); err != nil {
		return errors.Join(runErr, err)
	}
	if err := run.tell(cmd.OutOrStdout(), o.json); err != nil {
		return err
	}
	if runErr != nil {
		return fmt.Errorf("stopped after line %d, %w; running the same file again is safe", run.last, runErr)
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
	Existing int      `json:"existing"` // known from an earlier run
	Rejected int      `json:"rejected"`
	Reasons  []string `json:"reasons,omitempty"` // the first few
	Seconds  float64  `json:"seconds"`

	client  *queue.Client
	flags   bulkFlags
	rejects *rejects
	seen    map[string]int // how often the same line came, by its digest
	last    int            // the last line that was dealt with
	began   time.Time
}

const bulkBatch = 500

func (b *bulkRun) all(ctx context.Context, lines source) error {
	batch := make([]entry, 0, bulkBatch)
	jobs := make([]queue.Job, 0, bulkBatch)
	for {
		e, err := lines.next()
		if err != nil && !errors.Is(err, io.EOF) {
			return errors.Join(b.flush(ctx, batch, jobs), err)
		}
		if err != nil {
			return b.flush(ctx, batch, jobs)
		}
		b.Lines++
		var job queue.Job
		if e.err == nil {
			e.line.fillIn(b.flags.kind, b.flags.tenant)
			if e.line.Key == nil {
				key := b.keyOf(e.input)
				e.line.Key = &key
			}
			job, e.err = e.line.job()
		}
		if e.err != nil {
			if err := b.reject(e, e.err); err != nil {
				return err
			}
			continue
		}
		batch, jobs = append(batch, e), append(jobs, job)
		if len(jobs) == bulkBatch {
			if err := b.flush(ctx, batch, jobs); err != nil {
				return err
			}
			batch, jobs = batch[:0], jobs[:0]
		}
	}
}

// keyOf makes the key of a line without one: the same for the same line at the
// same occurrence, however often the file is run.
func (b *bulkRun) keyOf(input string) string {
	sum := sha256.Sum256([]byte(b.flags.kind + "\n" + b.flags.tenant + "\n" + input))
	digest := hex.EncodeToString(sum[:16])
	b.seen[digest]++
	return "line-" + digest + "-" + strconv.Itoa(b.seen[digest])
}

func (b *bulkRun) flush(ctx context.Context, batch []entry, jobs []queue.Job) error {
	for i, result := range b.client.EnqueueMany(ctx, jobs) {
		switch {
		case result.Err == nil && result.Existing:
			b.Existing++
		case result.Err == nil:
			b.Accepted++
		case isInvalid(result.Err), errors.Is(result.Err, queue.ErrConflict), errors.Is(result.Err, queue.ErrBacklogFull):
			if err := b.reject(batch[i], result.Err); err != nil {
				return err
			}
		default:
			return oneLine(result.Err)
		}
		b.last = batch[i].number
	}
	return nil
}

func (b *bulkRun) reject(e entry, reason error) error {
	b.Rejected++
	text := oneLine(reason).Error()
	if len(b.Reasons) < 5 {
		b.Reasons = append(b.Reasons, fmt.Sprintf("line %d: %s", e.number, text))
	}
	return b.rejects.add(rejectedLine{e.number, text, e.input})
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
	return err
}
