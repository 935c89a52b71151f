package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/internal/test/binaries"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/testlong"
)

// devRun is what one run of `worker dev` showed.
type devRun struct {
	out  string
	code int
	// first is how long after its Redis was up the first line of figures came; 0: none came.
	first time.Duration
	empty string // that line, if nothing had gone out in a column of it
}

// runDev runs `worker dev` as a user does, in a process of its own.
func runDev(t *testing.T, program string, args ...string) (r devRun) {
	t.Helper()
	addr := redistest.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.CommandContext(t.Context(), program, append([]string{"dev", "--http", "127.0.0.1:0", "--redis-port", port}, args...)...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	up := make(chan time.Time, 1)
	go func() {
		for t.Context().Err() == nil { // a Redis tells nobody that it is up
			if conn, err := net.Dial("tcp", addr); err == nil {
				conn.Close()
				break
			}
			time.Sleep(time.Millisecond)
		}
		up <- time.Now()
	}()
	var out strings.Builder
	var first time.Time
	figures := regexp.MustCompile(`^ +\d+s(  +\d+/\d+){6} +\d+$`)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		out.WriteString(lines.Text() + "\n")
		if first.IsZero() && figures.MatchString(lines.Text()) {
			first = time.Now()
			if strings.Contains(lines.Text(), " 0/") {
				r.empty = lines.Text()
			}
		}
	}
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		r.code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	r.out = out.String()
	if !first.IsZero() {
		r.first = first.Sub(<-up)
	}
	return r
}

// shortOf is what the run lacks of what the README says, as far as a busy machine can be
// the reason; slack is taken off the use that is wanted. judged is what of.
func (r devRun) shortOf(t *testing.T, slack float64) (short []string, judged string) {
	t.Helper()
	if r.first == 0 {
		short = append(short, "no line of figures came")
	} else if r.first > 2*time.Second {
		short = append(short, fmt.Sprintf("the first line came after %v", r.first))
	}
	if r.empty != "" {
		short = append(short, "nothing went out in a column of the first line: "+r.empty)
	}
	_, account, _ := strings.Cut(r.out, "\nAfter ")
	calls := 0
	for _, l := range bindingLimits {
		line := regexp.MustCompile(`(?m)^  ` + l.kind + ` +` + l.who() + ` .*? (\d+) of +(\d+) allowed .* rejected by the provider: (\d+)$`).FindStringSubmatch(account)
		if line == nil {
			t.Fatalf("the account has no line for %s of %s:\n%s", l.kind, l.who(), r.out)
		}
		sent, _ := strconv.Atoi(line[1])
		allowed, _ := strconv.Atoi(line[2])
		least := 0.99 - slack
		if l.unit == "tokens" {
			least = 0.98 - slack
		} else {
			calls += sent
		}
		use := float64(sent) / float64(allowed)
		judged += fmt.Sprintf("%s %s %.4f, ", l.kind, l.who(), use)
		if !(use >= least) {
			short = append(short, fmt.Sprintf("%s of %s used %.4f of its limit, want %.2f", l.kind, l.who(), use, least))
		}
		if line[3] != "0" {
			short = append(short, fmt.Sprintf("%s of %s: its provider refused %s calls", l.kind, l.who(), line[3]))
		}
	}
	return short, fmt.Sprintf("%s%d calls judged by their providers, first line after %v", judged, calls, r.first.Round(time.Millisecond))
}

// conformed fails the test unless what was counted when calls left stands beside what their providers saw, for each
// limit of calls, and kept to it.
func (r devRun) conformed(t *testing.T) {
	t.Helper()
	_, line, _ := strings.Cut(r.out, ", as counted and at the provider: ")
	line, _, _ = strings.Cut(line, "\n")
	limits := 0
	for _, l := range bindingLimits {
		if l.unit == "" {
			limits++
		}
	}
	all := regexp.MustCompile(`(\d+) and (\d+) of (\d+)`).FindAllStringSubmatch(line, -1)
	if len(all) != limits {
		t.Errorf("%d limits of %d are counted and seen:\n%s", len(all), limits, r.out)
	}
	for _, one := range all {
		counted, _ := strconv.Atoi(one[1])
		arrived, _ := strconv.Atoi(one[2])
		allowed, _ := strconv.Atoi(one[3])
		if counted < 1 || counted > allowed || arrived < 1 {
			t.Errorf("%s in a window", one[0])
		}
	}
}

// TestDev: after a minute every column has used what the README says, no provider refused
// a call, every job is accounted for, and the first line comes soon.
//
// A run that is short of that counts against the demo unless the demo's pacer, a process of
// its own, says that the machine was too busy for anybody. It takes minutes: without
// HEADGATE_TEST_LONG a demo of ten seconds is judged, of whose limits the start costs more,
// and only by its books if the machine was busy, as it is beside other packages' tests.
func TestDev(t *testing.T) {
	dir := t.TempDir()
	if err := binaries.Build(dir, "../..", "."); err != nil {
		t.Fatal(err)
	}
	length, slack := "10s", 0.04
	if testlong.On() {
		length, slack = "60s", 0
	}
	// One after the other: they would take the processors from each other.
	for name, args := range map[string][]string{"redis-server": nil, "miniredis": {"--miniredis"}} {
		t.Run(name, func(t *testing.T) {
			const tries = 4 // a run that does not count is repeated three times
			for try := 1; ; try++ {
				r := runDev(t, filepath.Join(dir, "worker"), append([]string{"--for", length}, args...)...)
				if r.code != 0 && r.code != 3 {
					t.Fatalf("exit %d:\n%s", r.code, r.out)
				}
				if !strings.Contains(r.out, " 0 failed for good, ") || !strings.Contains(r.out, " 0 called twice, 0 unaccounted for\n") ||
					!strings.Contains(r.out, "of which Redis does not know: 0; jobs done that no provider saw: 0\n") {
					t.Fatalf("the books are not even:\n%s", r.out)
				}
				if r.code == 0 {
					r.conformed(t)
				}
				short, judged := r.shortOf(t, slack)
				t.Logf("run %d, exit %d: %s", try, r.code, judged)
				if len(short) == 0 {
					if r.code != 0 {
						t.Errorf("exit %d, and nothing is wrong:\n%s", r.code, r.out)
					}
					return
				}
				said := strings.Join(short, "; ")
				switch {
				case r.code == 0 && !strings.Contains(r.out, "so this machine was busy\n"):
					t.Fatalf("%s, and it was not the machine:\n%s", said, r.out)
				case !testlong.On():
					t.Logf("machine too busy to judge this: %s", said)
					return
				case try == tries:
					t.Fatalf("machine too busy in each of %d runs; in the last, %s:\n%s", tries, said, r.out)
				}
				t.Logf("machine too busy, so once more: %s", said)
			}
		})
	}
}

// demoParts starts what a demo runs on, until the end of the test.
func demoParts(t *testing.T) (*embedded.Redis, *demoProviders) {
	t.Helper()
	store, err := embedded.Start(embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	providers, err := startProviders()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(providers.close)
	return store, providers
}

// TestDevOfFailingProviders: a demo of which every job fails for good exits 1.
func TestDevOfFailingProviders(t *testing.T) {
	store, providers := demoParts(t)
	const all = 1 << 30
	providers.web.Fail(all, 400)
	providers.post.Fail(all, 550)
	providers.models.Fail(all, 400)
	providers.stripe.Fail(all, 400)
	var out strings.Builder
	err := runDemo(t.Context(), &out, 2*time.Second, "127.0.0.1:0", store, providers)
	if err == nil || program.ExitCode(err) != 1 || !strings.Contains(err.Error(), " jobs failed for good, such as one with the reason ") {
		t.Errorf("%v\n%s", err, &out)
	}
	if !regexp.MustCompile(` 0 done, [1-9]\d* failed for good, `).MatchString(out.String()) {
		t.Errorf("something was done, or nothing failed:\n%s", &out)
	}
}

// asksAtOnce asks for the events of the page as soon as the demo says where it is.
type asksAtOnce struct {
	out  strings.Builder
	said chan string
}

func (a *asksAtOnce) Write(text []byte) (int, error) {
	if page := regexp.MustCompile(`try out: open (\S+)`).FindStringSubmatch(string(text)); page != nil {
		go func() {
			response, err := http.Get(strings.TrimSuffix(page[1], "/") + api.Base + "/events")
			if err != nil {
				a.said <- err.Error()
				return
			}
			defer response.Body.Close()
			all, _ := io.ReadAll(response.Body) // until the demo ends
			a.said <- string(all)
		}()
	}
	return a.out.Write(text)
}

// TestDevFromTheFirstMoment: who opens the page before the demo runs is not told that no worker serves its queues.
func TestDevFromTheFirstMoment(t *testing.T) {
	store, providers := demoParts(t)
	demo := &asksAtOnce{said: make(chan string, 1)}
	if err := runDemo(t.Context(), demo, time.Second, "127.0.0.1:0", store, providers); err != nil && program.ExitCode(err) != 3 {
		t.Fatalf("%v\n%s", err, &demo.out)
	}
	if said := <-demo.said; !strings.Contains(said, `"queue":"email"`) || strings.Contains(said, "no worker serves") {
		t.Errorf("the page of a demo whose worker runs:\n%s", said)
	}
}
