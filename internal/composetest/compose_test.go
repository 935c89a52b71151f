package composetest

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v4"
)

func load(t *testing.T) *types.Project {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	options, err := cli.NewProjectOptions([]string{filepath.Join(root, "docker-compose.yml")},
		cli.WithWorkingDirectory(root), cli.WithoutEnvironmentResolution)
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return project
}

func service(t *testing.T, name string) types.ServiceConfig {
	t.Helper()
	found, err := load(t).GetService(name)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestServices(t *testing.T) {
	project := load(t)
	if got, want := project.ServiceNames(), []string{"prometheus", "redis", "worker"}; !slices.Equal(got, want) {
		t.Errorf("services = %v; want %v", got, want)
	}
	for name, service := range project.Services {
		if check := service.HealthCheck; check == nil || check.Disable || len(check.Test) < 2 || check.Test[0] == "NONE" {
			t.Errorf("%s has no health check", name)
		}
		if service.NetworkMode == "host" || service.Privileged {
			t.Errorf("%s runs outside of its container", name)
		}
		for _, port := range service.Ports {
			if ip := net.ParseIP(port.HostIP); ip == nil || !ip.IsLoopback() {
				t.Errorf("%s publishes %s on %q; want loopback only", name, port.Published, port.HostIP)
			}
		}
		for _, volume := range service.Volumes {
			if volume.Type != types.VolumeTypeBind {
				continue
			}
			if !volume.ReadOnly {
				t.Errorf("%s can write to %s", name, volume.Source)
			}
			// Docker makes a folder of a file that is not there.
			if info, err := os.Stat(volume.Source); err != nil || !info.Mode().IsRegular() {
				t.Errorf("%s mounts %s, which is no file: %v", name, volume.Source, err)
			}
		}
	}
}

func TestNoTwoServicesPublishOnePort(t *testing.T) {
	seen := map[string]string{}
	for name, service := range load(t).Services {
		for _, port := range service.Ports {
			if other, taken := seen[port.Published]; taken {
				t.Errorf("%s and %s both publish %s", name, other, port.Published)
			}
			seen[port.Published] = name
		}
	}
}

func TestRedisKeepsJobs(t *testing.T) {
	redis := service(t, "redis")
	settings := map[string]string{}
	for i := 1; i+1 < len(redis.Command); i += 2 {
		settings[redis.Command[i]] = redis.Command[i+1]
	}
	for name, want := range map[string]string{"--appendonly": "yes", "--maxmemory-policy": "noeviction"} {
		if got := settings[name]; got != want {
			t.Errorf("%s is %q; want %q", name, got, want)
		}
	}
	if !slices.ContainsFunc(redis.Volumes, func(v types.ServiceVolumeConfig) bool {
		return v.Type == types.VolumeTypeVolume && v.Source != "" && v.Target == "/data"
	}) {
		t.Error("/data is no named volume: jobs go with the container")
	}
}

func TestWorker(t *testing.T) {
	worker := service(t, "worker")
	if !slices.Equal(worker.Command, []string{"run"}) {
		t.Errorf("command = %q; want run", worker.Command)
	}
	if want := (types.HealthCheckTest{"CMD", "/worker", "healthcheck"}); worker.HealthCheck == nil || !slices.Equal(worker.HealthCheck.Test, want) {
		t.Errorf("health check = %+v; want %q", worker.HealthCheck, want)
	}
	if got := worker.DependsOn["redis"].Condition; got != types.ServiceConditionHealthy {
		t.Errorf("redis need only be %q; want %q", got, types.ServiceConditionHealthy)
	}
	for name, want := range map[string]string{
		"HEADGATE_REDIS_URL": "redis://redis:6379",
		"HEADGATE_SMTP_ADDR": "smtp.example.com:587",
	} {
		if got := setting(worker, name); got != want {
			t.Errorf("%s = %q; want %q", name, got, want)
		}
	}

	limits := setting(worker, "HEADGATE_LIMITS_FILE")
	if !slices.ContainsFunc(worker.Volumes, func(v types.ServiceVolumeConfig) bool {
		return v.Target == limits && filepath.Base(v.Source) == "limits.yaml"
	}) {
		t.Errorf("HEADGATE_LIMITS_FILE = %q, which is not where limits.yaml is mounted", limits)
	}
	if !slices.ContainsFunc(worker.Ports, func(p types.ServicePortConfig) bool { return p.Target == httpPort(t, worker) }) {
		t.Errorf("port %d, where the page is, is not published", httpPort(t, worker))
	}
}

func TestPrometheusScrapesTheWorker(t *testing.T) {
	const file = "../../dashboard/prometheus/prometheus.yml"
	prometheus := service(t, "prometheus")
	if !slices.ContainsFunc(prometheus.Volumes, func(v types.ServiceVolumeConfig) bool {
		return v.Target == "/etc/prometheus/prometheus.yml" && strings.HasSuffix(filepath.ToSlash(v.Source), strings.TrimPrefix(file, "../.."))
	}) {
		t.Errorf("%s is not mounted", file)
	}

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		ScrapeConfigs []struct {
			MetricsPath   string                       `yaml:"metrics_path"`
			StaticConfigs []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, scrape := range config.ScrapeConfigs {
		if scrape.MetricsPath != "/metrics" {
			continue
		}
		for _, static := range scrape.StaticConfigs {
			targets = append(targets, static.Targets...)
		}
	}
	port := setting(service(t, "worker"), "HEADGATE_HTTP_ADDR")
	if want := "worker" + port; !slices.Contains(targets, want) {
		t.Errorf("Prometheus reads /metrics of %q; want %s", targets, want)
	}
}

func TestSampleLimitsAreYAML(t *testing.T) {
	text, err := os.ReadFile("../../limits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var limits struct{ Queues map[string]any }
	if err := yaml.Unmarshal(text, &limits); err != nil {
		t.Fatal(err)
	}
	for _, queue := range []string{"email", "webhook"} {
		if limits.Queues[queue] == nil {
			t.Errorf("limits.yaml has no queue %s", queue)
		}
	}
}

// setting is the value of an environment variable; "" when it is not set.
func setting(service types.ServiceConfig, name string) string {
	if value := service.Environment[name]; value != nil {
		return *value
	}
	return ""
}

// httpPort is the port that the worker listens on.
func httpPort(t *testing.T, worker types.ServiceConfig) uint32 {
	t.Helper()
	host, service, err := net.SplitHostPort(setting(worker, "HEADGATE_HTTP_ADDR"))
	if err != nil || host != "" {
		t.Fatalf("HEADGATE_HTTP_ADDR = %q, %v; want a port on all addresses of the container", setting(worker, "HEADGATE_HTTP_ADDR"), err)
	}
	port, err := net.LookupPort("tcp", service)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(port)
}
