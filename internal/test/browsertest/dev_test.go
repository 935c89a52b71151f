package browsertest

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
)

// newDev starts `worker dev` and a client of its Redis, and waits for its page.
func newDev(t testing.TB) (*stage, *process) {
	t.Helper()
	bin := built(t)
	p := start(t, filepath.Join(bin, "worker"), []string{"dev", "--http", redistest.FreeAddr(t)}, nil)
	redisLine, pageLine := regexp.MustCompile(`redis://\S+`), regexp.MustCompile(`open (http://127\.0\.0\.1:\d+)`)
	var url string
	until.Done(t, "worker dev says where its page is", func() bool {
		said := p.log.Tail(1 << 20)
		url = redisLine.FindString(said)
		if found := pageLine.FindStringSubmatch(said); found != nil {
			p.page = found[1]
		}
		return url != "" && p.page != ""
	})
	options, err := queue.ParseRedisURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewUniversalClient(options)
	t.Cleanup(func() { _ = client.Close() })
	// It says where it is before its limits are in force.
	until.Done(t, "the limits of worker dev are in force", func() bool {
		limits, err := inspect.LimitsInForce(t.Context(), client, "webhook", "globex")
		return err == nil && len(limits) > 0
	})
	s := &stage{t: t, rdb: client, client: queue.NewClient(client)}
	s.receiver = strings.Replace(s.receive(), "127.0.0.1", "localhost", 1) // pictures show it
	return s, p
}
