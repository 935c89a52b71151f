package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"syscall"
	"time"
)

// taskVariable gives a process of this program its task, as JSON.
const taskVariable = "HEADGATE_BENCH_TASK"

// profileVariable is a folder that gets a CPU profile of each worker.
const profileVariable = "HEADGATE_BENCH_PROFILE"

var errNoWorker = errors.New("this process has no task")

// The contenders.
const (
	plainAsynq = "asynq"
	recipe     = "asynq + redis_rate" // asynq's documented recipe for rate limits
	headgate   = "headgate"
	pacer      = "pacer" // a perfect one, without any queue
)

// task is what a process is to do.
type task struct {
	Contender string
	Enqueues  bool // it enqueues; else it works
	Spins     bool // it keeps a core busy
	Redis     string
	Queues    []string
	Workers   int     // in this process; 0 means 1
	Receiver  string  // URL that handlers call; "": they do nothing
	Limits    []limit // of the recipe and the pacer

	// Of what enqueues, and of the pacer:
	Jobs    int // in all
	Tenants int
	Batch   int // jobs of a call of enqueue
	Callers int // goroutines
}

// work does the task of this process, until it is done or the standard input ends.
func work(ctx context.Context, in io.Reader, out io.Writer) error {
	text := os.Getenv(taskVariable)
	if text == "" {
		return errNoWorker
	}
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return fmt.Errorf("%s: %w", taskVariable, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	encoder := json.NewEncoder(out)
	if dir := os.Getenv(profileVariable); dir != "" && !t.Enqueues && !t.Spins {
		stop, err := profile(dir, t.Contender)
		if err != nil {
			return err
		}
		defer stop()
	}
	log := newCallLog(t)
	var told error
	ready := sync.OnceFunc(func() { told = encoder.Encode(struct{}{}) })
	if err := t.run(ctx, log, ready); err != nil {
		return err
	}
	if told != nil {
		return told
	}
	u := log.usage
	var spent syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &spent); err != nil {
		return err
	}
	u.CPU = time.Duration(spent.Utime.Nano() + spent.Stime.Nano())
	return encoder.Encode(u)
}

func (t task) run(ctx context.Context, log *callLog, ready func()) error {
	switch {
	case t.Spins:
		return spin(ctx, ready)
	case t.Enqueues:
		return enqueueAll(ctx, t, log, ready)
	case t.Contender == headgate:
		return runHeadgate(ctx, t, log, ready)
	case t.Contender == pacer:
		return pace(ctx, t, log, ready)
	default:
		return runAsynq(ctx, t, log, ready)
	}
}

// profile writes a CPU profile of this process until it is stopped.
func profile(dir, contender string) (stop func(), err error) {
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d.pprof", contender, os.Getpid())))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", profileVariable, err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
	}, nil
}

// spin keeps one core busy.
func spin(ctx context.Context, ready func()) error {
	ready()
	for ctx.Err() == nil {
	}
	return nil
}
