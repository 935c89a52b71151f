// Package pacer distinguishes a broken promise from a busy machine, in tests that measure time.
//
// A pacer is a separate process that calls the receiver of a test at exact times, at the same time
// as the test's workers. [Measure] judges a run as a whole, by the promises alone: every call of
// every tenant, and every window. Delays can only break these promises: they bring calls closer
// together, use less of a limit and take time. So a run that keeps all promises passes. A run that
// breaks one fails the test if the pacer's own calls were in time ([Bound]) during the judged
// period. If they were late, the run does not count and is repeated when the machine is calm. After
// four such runs the test fails with "machine too busy". A worker that slows down the machine or the
// receiver delays the pacer too: that changes the reason for which a test fails, but cannot make it
// pass.
//
// Where the receiver is a process of its own ([Run.At]), few moments of delay need not cost the run.
// A call that was late itself brings the next ones closer to it, so every window is judged again with
// its first call as late as the pacer's own calls were at that very moment, and no later: all other
// windows keep their bounds, and a limit that is too high breaks them. Only if more of the pacer's
// calls were late than [Busy], or another promise is broken, the run does not count.
//
// The pacer is the test binary itself, so its TestMain must begin with [Main].
package pacer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/smtp"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Tenant is the tenant of a pacer's calls. Their job is the time at which they were due, in ns
// since 1970: see [Due].
const Tenant = "the-pacer"

const (
	every    = 5 * time.Millisecond
	variable = "HEADGATE_TEST_PACER"
)

// Main turns this process into a pacer if a test started it as one. Otherwise it returns.
func Main() {
	target := os.Getenv(variable)
	if target == "" {
		return
	}
	if err := pace(target); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// pace makes all calls that are due until stdin is closed, and prints their number.
func pace(target string) error {
	call := webhook(target)
	if addr, ok := strings.CutPrefix(target, "smtp://"); ok {
		call = mail(addr)
	}
	if err := call(time.Time{}); err != nil { // connects
		return err
	}
	closed := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(closed)
	}()
	errs := make(chan error, 1)
	var running sync.WaitGroup
	began := time.Now()
	slot := 0
	send := func() {
		due := began.Add(time.Duration(slot) * every)
		slot++
		running.Go(func() {
			if err := call(due); err != nil {
				select {
				case errs <- err:
				default:
				}
			}
		})
	}
	for {
		select {
		case err := <-errs:
			return err
		case <-time.After(time.Until(began.Add(time.Duration(slot) * every))):
			send()
			continue
		case <-closed:
		}
		// A pacer that hardly ran still makes its overdue calls, which show how late it was.
		for end := time.Now(); !began.Add(time.Duration(slot) * every).After(end); {
			send()
		}
		running.Wait()
		select {
		case err := <-errs:
			return err
		default:
		}
		fmt.Println("sent", slot)
		return nil
	}
}

func webhook(url string) func(due time.Time) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	return func(due time.Time) error {
		request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader("{}"))
		if err != nil {
			return err
		}
		request.Header.Set("Headgate-Tenant", Tenant)
		request.Header.Set("Headgate-Job", job(due))
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
}

func mail(addr string) func(due time.Time) error {
	idle := make(chan *smtp.Client, 64)
	return func(due time.Time) error {
		var client *smtp.Client
		select {
		case client = <-idle:
		default:
			var err error
			if client, err = smtp.Dial(addr); err != nil {
				return err
			}
		}
		if err := client.Mail("pacer@acme.example"); err != nil {
			return err
		}
		if err := client.Rcpt("you@example.com"); err != nil {
			return err
		}
		w, err := client.Data()
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "Headgate-Tenant: %s\r\nHeadgate-Job: %s\r\n\r\nhello\r\n", Tenant, job(due)); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		idle <- client
		return nil
	}
}

// job returns the job of the call that is due at a time; "" for the one that only connects.
func job(due time.Time) string {
	if due.IsZero() {
		return ""
	}
	return strconv.FormatInt(due.UnixNano(), 10)
}

// Due returns when a call of a pacer was due, and false for a call that does not count.
func Due(job string) (time.Time, bool) {
	ns, err := strconv.ParseInt(job, 10, 64)
	return time.Unix(0, ns), err == nil
}

// processes are running pacers of one target.
type processes []*process

// process is a running pacer.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Reader
}

// startAhead starts pacers that run before all other processes: where the system allows it one on each
// core, because a virtual machine's cores can be stopped one at a time. Of more than a few cores, others run
// what waits.
func startAhead(t testing.TB, target string) (all processes) {
	t.Helper()
	const few = 4
	if cores := runtime.NumCPU(); realtime() && pins() && cores <= few {
		for core := range cores {
			all = append(all, start(t, target, Ahead("taskset", "--cpu-list", strconv.Itoa(core), self(t))))
		}
		return all
	}
	return processes{start(t, target, Ahead(self(t)))}
}

// pins reports whether this system can keep a process on one core.
var pins = sync.OnceValue(func() bool { return exec.Command("taskset", "--cpu-list", "0", "true").Run() == nil })

func self(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func start(t testing.TB, target string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd}
	p.cmd.Env = append(os.Environ(), variable+"="+target)
	p.cmd.Stderr = os.Stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("pacer: %v", err)
	}
	p.stdin, p.out = stdin, bufio.NewReader(stdout)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return p
}

// stop ends the pacers after the answers to their last calls, and returns the number of their calls.
func (all processes) stop() (sent int, err error) {
	for _, p := range all {
		n, err := p.stop()
		if err != nil {
			return 0, err
		}
		sent += n
	}
	return sent, nil
}

// stop ends the pacer after the answer to its last call, and returns the number of its calls.
func (p *process) stop() (sent int, err error) {
	p.stdin.Close()
	line, _ := p.out.ReadString('\n')
	if _, err := fmt.Sscanf(line, "sent %d", &sent); err != nil {
		return 0, fmt.Errorf("the pacer failed: %s", line)
	}
	return sent, nil
}
