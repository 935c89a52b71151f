package metrics

import (
	"bytes"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/headgate/headgate/internal/test/monitoring"
)

// promtool runs the one of Debian's package prometheus in dashboard/prometheus.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatal("no promtool in PATH; scripts/install-test-deps.sh installs it")
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = "../prometheus"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
}

func TestPromtool(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "config", "prometheus.yml")
	promtool(t, "check", "rules", "rules.yml", "alerts.yml")
	promtool(t, "test", "rules", "tests.yml")
}

func rules(t *testing.T) []monitoring.Rule {
	t.Helper()
	all, err := monitoring.Rules("..")
	if err != nil || len(all) == 0 {
		t.Fatalf("%d rules: %v", len(all), err)
	}
	return all
}

func boards(t *testing.T) []monitoring.Board {
	t.Helper()
	all, err := monitoring.Boards("..")
	if err != nil || len(all) != 2 {
		t.Fatalf("%d dashboards: %v", len(all), err)
	}
	return all
}

// TestAlerts: each says what it means and what to do, and promtool is shown where
// it fires and where it does not.
func TestAlerts(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			Cases []struct {
				Name   string `yaml:"alertname"`
				Alerts []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		} `yaml:"tests"`
	}
	if err := monitoring.Read("../prometheus/tests.yml", &file); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]int{}, map[string]int{}
	for _, test := range file.Tests {
		for _, c := range test.Cases {
			if len(c.Alerts) > 0 {
				fires[c.Name]++
			} else {
				silent[c.Name]++
			}
		}
	}
	alerts := 0
	for _, rule := range rules(t) {
		if rule.Alert == "" {
			continue
		}
		alerts++
		for _, annotation := range []string{"summary", "description", "action"} {
			if len(rule.Annotations[annotation]) < 10 {
				t.Errorf("%s: no %s", rule.Alert, annotation)
			}
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) {
			t.Errorf("%s: severity %q", rule.Alert, rule.Labels["severity"])
		}
		if fires[rule.Alert] == 0 || silent[rule.Alert] == 0 {
			t.Errorf("%s: %d tests let it fire and %d do not", rule.Alert, fires[rule.Alert], silent[rule.Alert])
		}
	}
	if alerts == 0 {
		t.Error("no alerts")
	}
}

func TestDashboards(t *testing.T) {
	t.Parallel()
	uids := map[string]bool{}
	for _, board := range boards(t) {
		if uids[board.UID] || board.UID == "" || board.Title == "" || board.Description == "" || board.SchemaVersion < 39 {
			t.Errorf("%q, uid %q, schema %d", board.Title, board.UID, board.SchemaVersion)
		}
		uids[board.UID] = true
		if board.Templating.List[0].Type != "datasource" || board.Templating.List[0].Name != "datasource" {
			t.Errorf("%s: its first variable is not the datasource", board.Title)
		}
		ids, cells := map[int]bool{}, map[[2]int]string{}
		for _, panel := range board.Panels {
			if ids[panel.ID] {
				t.Errorf("%s: id %d stands twice", panel.Title, panel.ID)
			}
			ids[panel.ID] = true
			for x := range panel.GridPos.W {
				for y := range panel.GridPos.H {
					cell := [2]int{panel.GridPos.X + x, panel.GridPos.Y + y}
					if cell[0] >= 24 || cells[cell] != "" {
						t.Fatalf("%s: %q is over the edge, or over %q", board.Title, panel.Title, cells[cell])
					}
					cells[cell] = panel.Title
				}
			}
			if panel.Type == "row" {
				continue
			}
			if panel.Title == "" || len(panel.Description) < 10 || panel.FieldConfig.Defaults.Unit == "" || len(panel.Targets) == 0 || panel.Datasource.UID != "${datasource}" {
				t.Errorf("%s: %q lacks a title, a description, a unit, a question or the datasource", board.Title, panel.Title)
			}
		}
	}
	if !uids["headgate-queues"] || !uids["headgate-workers"] {
		t.Errorf("uids: %v", uids)
	}
}

var metricNames = regexp.MustCompile(`[a-zA-Z_:]*(headgate|asynq|process|go)_[a-zA-Z0-9_:]*`)

// TestMetricsAreThere: every metric in a rule, an alert or a panel is one that
// workers show or a rule records; and each of ours stands in one of them.
func TestMetricsAreThere(t *testing.T) {
	t.Parallel()
	known := map[string]bool{"process_cpu_seconds_total": true, "process_resident_memory_bytes": true, "go_goroutines": true}
	families := everyMetric(t)
	for _, family := range families {
		known[family.GetName()] = true
		if family.GetType() == dto.MetricType_HISTOGRAM {
			known[family.GetName()+"_bucket"] = true
		}
	}
	var exprs []string
	for _, rule := range rules(t) {
		exprs = append(exprs, rule.Expr)
		if rule.Record != "" {
			known[rule.Record] = true
		}
	}
	for _, board := range boards(t) {
		for _, variable := range board.Templating.List {
			exprs = append(exprs, variable.Definition)
		}
		for _, panel := range board.Panels {
			for _, target := range panel.Targets {
				exprs = append(exprs, target.Expr)
			}
		}
	}
	used := map[string]bool{}
	for _, expr := range exprs {
		for _, name := range metricNames.FindAllString(expr, -1) {
			if used[strings.TrimSuffix(name, "_bucket")] = true; !known[name] {
				t.Errorf("there is no %s, which stands in %s", name, expr)
			}
		}
	}
	for _, family := range families {
		if !used[family.GetName()] {
			t.Errorf("no panel and no rule shows %s", family.GetName())
		}
	}
}
