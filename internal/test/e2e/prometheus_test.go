package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/dashboard/metrics"
	"github.com/headgate/headgate/internal/test/logtest"
	"github.com/headgate/headgate/internal/test/monitoring"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/stage"
	"github.com/headgate/headgate/throttle"
	"github.com/headgate/headgate/throttle/limitmetrics"
)

const watched = `
queues:
  webhook:
    kinds: [webhook, email]
    limits:
      - {name: account, algorithm: leaky_bucket, rate: 60/s, adaptive: true}
      - {name: tenant, per: [tenant], algorithm: token_bucket, rate: 20/s}
      - {name: in-flight, per: [tenant], concurrency: 10}
`

// TestEveryExpressionReturnsData lets a real Prometheus, with the files of
// dashboard/prometheus, scrape two workers under load, and asks it every question
// of every panel, rule and alert.
//
// An alert's answer is empty while all is well. With `bool` its comparison tells 0
// or 1 of every series instead of leaving some out, so that an alert about what
// nobody counts is found. One that asks for what is absent is asked for that.
func TestEveryExpressionReturnsData(t *testing.T) {
	t.Parallel()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	t.Cleanup(receiver.Close)
	s := stage.Bare(t, watched, redistest.Start(t))
	s.Calls = receiver.URL
	var lines strings.Builder
	for i := range 8 {
		lines.WriteString(s.Jobs(fmt.Sprintf("tenant-%d", i), 200, ""))
	}
	s.Bulk(lines.String())
	// An account that is used up, of a kind that nothing here waits for.
	now := time.Now()
	hold := fmt.Sprintf("%d tried 300000000 %d - the daily quota", now.Add(time.Hour).UnixMicro(), now.UnixMicro())
	if err := s.Redis.Client().HSet(t.Context(), "headgate:{webhook}:pauses", "a:email", hold).Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s.Worker("HEADGATE_METRICS_TENANTS=top:5")
	}
	p := startPrometheus(s, limiting(t, s))

	rules, err := monitoring.Rules("../../../dashboard")
	if err != nil {
		t.Fatal(err)
	}
	boards, err := monitoring.Boards("../../../dashboard")
	if err != nil {
		t.Fatal(err)
	}
	questions := map[string]string{} // by what asks them
	for _, rule := range rules {
		switch absent := absentOf.FindStringSubmatch(rule.Expr); {
		case rule.Record != "":
			questions[rule.Record] = rule.Record
		case absent != nil:
			questions[rule.Alert] = absent[1]
		default:
			questions[rule.Alert] = comparison.ReplaceAllString(rule.Expr, "$1 bool ")
		}
	}
	variables := strings.NewReplacer("$queue", ".*", "$instance", ".*", "$__rate_interval", "30s")
	for _, board := range boards {
		for _, panel := range board.Panels {
			for i, target := range panel.Targets {
				questions[fmt.Sprintf("%s, %s, %c", board.Title, panel.Title, 'A'+i)] = variables.Replace(target.Expr)
			}
		}
	}
	end := time.Now().Add(2 * time.Minute) // of a machine that others use, too
	for who, question := range questions {
		for p.answers(question) == 0 {
			if time.Now().After(end) {
				t.Errorf("%s: no data for %s", who, question)
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	t.Logf("%d questions were asked", len(questions))
	p.rulesAreWell()
	for _, rule := range rules {
		for _, command := range commands.FindAllStringSubmatch(rule.Annotations["action"], -1) {
			if out, err := exec.Command(filepath.Join(s.Bin, "enqueue"), command[1], "--help").CombinedOutput(); err != nil || !strings.Contains(string(out), "enqueue "+command[1]+" ") {
				t.Errorf("%s: there is no enqueue %s: %s", rule.Alert, command[1], out)
			}
		}
	}
}

var (
	absentOf   = regexp.MustCompile(`^absent\((.*)\)$`)
	comparison = regexp.MustCompile(`( [<>]| ==) `)
	commands   = regexp.MustCompile(`"enqueue ([a-z]+)"`)
)

// limiting is a program with a limiter of its own, which lets some calls go, some wait, and refuses others. It returns
// the address of its metrics.
func limiting(t *testing.T, s *stage.Stage) string {
	t.Helper()
	registry := metrics.NewRegistry()
	limiter, err := throttle.New(s.Redis.Client(), "", throttle.Limit{Name: "provider", Algorithm: throttle.LeakyBucket, Rate: throttle.PerSecond(20)})
	if err != nil {
		t.Fatal(err)
	}
	limiter = limiter.WithObserver(limitmetrics.New(registry).Observe)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			_, _ = limiter.Take(ctx, 1, "k")
			_, _ = limiter.Wait(ctx, 1, "k")
		}
	}()
	server := httptest.NewServer(metrics.Handler(registry))
	t.Cleanup(func() {
		stop()
		<-ended
		server.Close()
	})
	return server.Listener.Addr().String()
}

// prometheus is a real one.
type prometheus struct {
	t   *testing.T
	url string
}

// prometheus starts one that scrapes the stage's workers, and another program as the API, each second, with the
// configuration of dashboard/prometheus otherwise.
func startPrometheus(s *stage.Stage, other string) *prometheus {
	s.T.Helper()
	t := s.T.(*testing.T)
	path, err := exec.LookPath("prometheus")
	if err != nil {
		t.Fatal("no prometheus in PATH; scripts/install-test-deps.sh installs it")
	}
	const from = "../../../dashboard/prometheus/"
	for _, name := range []string{"prometheus.yml", "rules.yml", "alerts.yml"} {
		text, err := os.ReadFile(from + name)
		if err != nil {
			t.Fatal(err)
		}
		if name == "prometheus.yml" {
			text = scraping(s, text, other)
		}
		s.Write(name, string(text))
	}
	addr := redistest.FreeAddr(t)
	log := &logtest.Buffer{}
	cmd := exec.Command(path, "--config.file", filepath.Join(s.Dir, "prometheus.yml"), "--storage.tsdb.path", t.TempDir(), "--web.listen-address", addr)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log of prometheus:\n%s", log.Tail(4000))
		}
	})
	p := &prometheus{t, "http://" + addr}
	s.Until(20*time.Second, "prometheus is ready", func() bool {
		response, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return p
}

// scraping is a configuration that scrapes the stage's workers, and another program as the API, each second.
func scraping(s *stage.Stage, text []byte, other string) []byte {
	s.T.Helper()
	config := struct {
		Global map[string]any   `yaml:"global"`
		Rules  []string         `yaml:"rule_files"`
		Scrape []map[string]any `yaml:"scrape_configs"`
	}{}
	if err := yaml.Unmarshal(text, &config); err != nil || len(config.Scrape) != 2 {
		s.T.Fatalf("%d scrape configurations: %v", len(config.Scrape), err)
	}
	var targets []string
	for _, w := range s.Workers {
		targets = append(targets, strings.TrimPrefix(w.HTTP, "http://"))
	}
	config.Global = map[string]any{"scrape_interval": "1s", "evaluation_interval": "1s"}
	for i, targets := range [][]string{targets, {other}} {
		delete(config.Scrape[i], "dns_sd_configs")
		config.Scrape[i]["static_configs"] = []map[string]any{{"targets": targets}}
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		s.T.Fatal(err)
	}
	return text
}

func (p *prometheus) get(path string, into any) {
	p.t.Helper()
	response, err := http.Get(p.url + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	answer := struct {
		Error string
		Data  any
	}{Data: into}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Error != "" {
		p.t.Fatalf("%s: %v %s", path, err, answer.Error)
	}
}

// answers is how many series a question returns.
func (p *prometheus) answers(question string) int {
	p.t.Helper()
	var data struct{ Result []any }
	p.get("/api/v1/query?query="+url.QueryEscape(question), &data)
	return len(data.Result)
}

// rulesAreWell checks that Prometheus evaluates every rule without an error, and
// that both workers are scraped.
func (p *prometheus) rulesAreWell() {
	p.t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	p.get("/api/v1/rules", &data)
	seen := 0
	for _, group := range data.Groups {
		for _, rule := range group.Rules {
			if seen++; rule.Health != "ok" {
				p.t.Errorf("%s: %s %s", rule.Name, rule.Health, rule.LastError)
			}
		}
	}
	if seen == 0 {
		p.t.Error("prometheus has no rules")
	}
	if n := p.answers(`up{job="headgate"} == 1`); n != 2 {
		p.t.Errorf("%d workers are scraped, want 2", n)
	}
}
