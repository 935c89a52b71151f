package redistest

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/redisproc"
)

//go:embed preload/synced.c
var syncedSource string

// Synced starts a server whose [Server.PowerCut] drops what was not synced. It needs a C compiler,
// like the race detector.
func Synced(t testing.TB, config ...string) *Server {
	t.Helper()
	dir := t.TempDir()
	source, library := filepath.Join(dir, "synced.c"), filepath.Join(dir, "synced.so")
	if err := os.WriteFile(source, []byte(syncedSource), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", library, source, "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("redistest: cc: %v: %s", err, out)
	}
	process, err := redisproc.Start(redisproc.Config{Dir: dir, Args: append([]string{"--appendonly", "yes"}, config...), Env: []string{"LD_PRELOAD=" + library}})
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(process.Kill)
	s := newServer(t, process, false)
	s.dir = dir
	return s
}

// PowerCut ends a server of [Synced], and drops what it had written and not synced. It returns how
// many bytes of its append-only files that were.
func (s *Server) PowerCut() (dropped int64) {
	s.t.Helper()
	s.Kill()
	files, err := filepath.Glob(filepath.Join(s.dir, "appendonlydir", "*.aof"))
	if err != nil || len(files) == 0 {
		s.t.Fatalf("redistest: no append-only files: %v", err)
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			s.t.Fatalf("redistest: %v", err)
		}
		var size int64
		text, err := os.ReadFile(file + ".synced")
		if os.IsNotExist(err) {
			err = nil // never synced
		} else if err == nil {
			size, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		}
		if err == nil {
			err = os.Truncate(file, size)
		}
		if err != nil {
			s.t.Fatalf("redistest: %v", err)
		}
		dropped += info.Size() - size
	}
	return dropped
}
