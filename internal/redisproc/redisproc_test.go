package redisproc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/test/until"
)

// parentEnv makes this test binary start a server and wait for its own death.
const parentEnv = "HEADGATE_TEST_REDIS_PARENT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentEnv); dir != "" {
		p, err := Start(Config{Dir: dir})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(p.Addr())
		select {}
	}
	goleak.VerifyTestMain(m)
}

func startTest(t *testing.T, args ...string) *Process {
	t.Helper()
	p, err := Start(Config{Dir: t.TempDir(), Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// patience is how long a server may take on a busy machine.
const patience = time.Minute

// ask sends one inline command and returns the first line of the answer; it waits this long for one.
func ask(addr, command string, wait time.Duration) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, command+"\r\n"); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(answer), err
}

func wantAnswer(t *testing.T, p *Process, command, want string) {
	t.Helper()
	if got, err := ask(p.Addr(), command, patience); err != nil || got != want {
		t.Fatalf("%s = %q, %v; want %q", command, got, err, want)
	}
}

func TestStart(t *testing.T) {
	p := startTest(t, "--appendonly", "yes")
	wantAnswer(t, p, "SET a 1", "+OK")
	if p.Major() < 6 {
		t.Errorf("Version = %q, Major = %d", p.Version(), p.Major())
	}

	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	if answer, err := ask(p.Addr(), "PING", 300*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a paused server answered %q, %v", answer, err)
	}
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, p, "PING", "+PONG")

	p.Kill()
	if _, err := ask(p.Addr(), "PING", patience); err == nil {
		t.Fatal("a killed server answered")
	}
	if err := p.Pause(); err == nil {
		t.Error("Pause of a killed server returned nil")
	}
	p.Kill()      // once more does nothing
	for range 2 { // from a standstill, then from a run
		if err := p.Restart(); err != nil {
			t.Fatal(err)
		}
		wantAnswer(t, p, "INCRBY a 0", ":1")
	}

	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	p.Stop()
	if took := time.Since(began); took > stopTimeout/2 {
		t.Errorf("Stop of a paused server took %v", took)
	}
	if p.Version() != "" {
		t.Errorf("Version of a stopped server = %q", p.Version())
	}
}

func TestStartDoesNotTakeAnotherServersPort(t *testing.T) {
	p := startTest(t)
	_, port, _ := net.SplitHostPort(p.Addr())
	number, _ := strconv.Atoi(port)
	_, err := Start(Config{Port: number, Dir: t.TempDir()})
	if !errors.Is(err, errPortTaken) {
		t.Errorf("Start on a taken port = %v; want %v", err, errPortTaken)
	}
	wantAnswer(t, p, "PING", "+PONG")
}

func TestStartErrors(t *testing.T) {
	_, err := Start(Config{Dir: t.TempDir(), Args: []string{"--no-such-setting", "1"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("Start with a bad setting = %v; want what the server said", err)
	}
	if _, err := Start(Config{Dir: filepath.Join(t.TempDir(), "absent")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Start without its folder = %v; want %v", err, os.ErrNotExist)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Start(Config{Dir: t.TempDir()}); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("Start with an empty PATH = %v; want %v", err, ErrNotInstalled)
	}
}

// The signal of a dying parent comes when the thread that forked ends.
func TestServerOutlivesTheThreadOfItsStarter(t *testing.T) {
	started := make(chan *Process)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		p, err := Start(Config{Dir: t.TempDir()})
		if err != nil {
			t.Error(err)
		}
		started <- p
	}()
	p := <-started
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(p.Kill)
	for range 20 {
		runtime.GC()
		time.Sleep(5 * time.Millisecond)
		wantAnswer(t, p, "PING", "+PONG")
	}
}

func TestServerDiesWithItsParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"="+t.TempDir())
	parent.Stderr = t.Output()
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	addr = strings.TrimSpace(addr)
	if _, err := ask(addr, "PING", patience); err != nil {
		t.Fatal(err)
	}
	if err := parent.Process.Kill(); err != nil { // SIGKILL: no cleanup runs
		t.Fatal(err)
	}
	_ = parent.Wait()
	until.Done(t, "the server on "+addr+" ends with its parent", func() bool {
		_, err := ask(addr, "PING", patience)
		return err != nil
	})
}
