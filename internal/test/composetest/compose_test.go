package composetest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/redis/go-redis/v9"
	"go.yaml.in/yaml/v4"
)

var services = []string{"api", "grafana", "prometheus", "redis", "worker"}

const password = "0123456789abcdef"

func load(t *testing.T) *types.Project {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	options, err := cli.NewProjectOptions([]string{filepath.Join(root, "docker-compose.yml")},
		cli.WithWorkingDirectory(root), cli.WithEnv([]string{"HEADGATE_REDIS_PASSWORD=" + password}))
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

// rules are what holds for every service; each says what is wrong with one.
var rules = map[string]func(types.ServiceConfig) string{
	"image": func(s types.ServiceConfig) string {
		// What is built here is of this version; of the rest, a version must stay what it was.
		_, tag, _ := strings.Cut(s.Image, ":")
		if s.Build == nil && !regexp.MustCompile(`^v?\d+\.\d+\.\d+`).MatchString(tag) {
			return fmt.Sprintf("image %q is not of one version", s.Image)
		}
		return ""
	},
	"health check": func(s types.ServiceConfig) string {
		check := s.HealthCheck
		if check == nil || check.Disable || len(check.Test) < 2 {
			return "there is none"
		}
		// The images with a shell, and a wget, are those of others.
		program := filepath.Base(check.Test[1])
		if s.Build != nil && (check.Test[0] != "CMD" || len(check.Test) != 3 || check.Test[2] != "healthcheck" || program != s.Build.Target) {
			return fmt.Sprintf("%q: the image has no shell, only %q", check.Test, s.Build.Target)
		}
		if check.Test[0] != "CMD" && check.Test[0] != "CMD-SHELL" || check.Test[0] == "CMD" && s.Build == nil && program != "wget" {
			return fmt.Sprintf("%q runs nothing that the image has", check.Test)
		}
		return ""
	},
	"user": func(s types.ServiceConfig) string {
		// A name is looked up in the image, where nobody sees here what it means.
		user, _, _ := strings.Cut(s.User, ":")
		if id, err := strconv.Atoi(user); err != nil || id <= 0 {
			return fmt.Sprintf("user %q is not a number above 0", s.User)
		}
		return ""
	},
	"file system": func(s types.ServiceConfig) string {
		if !s.ReadOnly {
			return "it can be written to"
		}
		return ""
	},
	"privileges": func(s types.ServiceConfig) string {
		if s.Privileged || s.NetworkMode == "host" || s.Pid != "" || s.Ipc != "" || len(s.CapAdd) > 0 || len(s.Devices) > 0 ||
			!slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) {
			return "it has more than it needs"
		}
		return ""
	},
	"restart": func(s types.ServiceConfig) string {
		if s.Restart != types.RestartPolicyUnlessStopped {
			return fmt.Sprintf("%q", s.Restart)
		}
		return ""
	},
	"ports": func(s types.ServiceConfig) string {
		for _, port := range s.Ports {
			if ip := net.ParseIP(port.HostIP); ip == nil || !ip.IsLoopback() {
				return fmt.Sprintf("%s is published on %q; want loopback only", port.Published, port.HostIP)
			}
			if s.Deploy != nil && s.Deploy.Replicas != nil && *s.Deploy.Replicas > 1 {
				return fmt.Sprintf("%s is published by each of %d", port.Published, *s.Deploy.Replicas)
			}
		}
		return ""
	},
	"mounts": func(s types.ServiceConfig) string {
		for _, volume := range s.Volumes {
			switch volume.Type {
			case types.VolumeTypeVolume:
				if volume.Source == "" {
					return volume.Target + " is a volume without a name"
				}
			case types.VolumeTypeBind:
				// Docker makes a folder of what is not there.
				if _, err := os.Stat(volume.Source); err != nil {
					return err.Error()
				}
				if !volume.ReadOnly {
					return volume.Source + " can be written to"
				}
			default:
				return volume.Target + " is a " + volume.Type
			}
		}
		return ""
	},
}

// TestWhoReachesRedis: nothing that shows metrics reaches Redis, and nothing but workers the outside.
func TestWhoReachesRedis(t *testing.T) {
	in := map[string][]string{}
	for name, service := range load(t).Services {
		if len(service.Networks) == 0 || service.Networks["default"] != nil {
			t.Errorf("%s is in the network that all are in", name)
		}
		for network := range service.Networks {
			in[network] = append(in[network], name)
		}
		if service.MemLimit == 0 {
			t.Errorf("%s may take all memory", name)
		}
		if limit := setting(service, "GOMEMLIMIT"); service.Build != nil {
			mib, err := strconv.ParseInt(strings.TrimSuffix(limit, "MiB"), 10, 64)
			if err != nil || mib<<20 >= int64(service.MemLimit) || mib<<20 < int64(service.MemLimit)*8/10 {
				t.Errorf("%s: GOMEMLIMIT is %q of %d bytes", name, limit, service.MemLimit)
			}
		}
	}
	for network, want := range map[string][]string{"redis": {"api", "redis", "worker"}, "outside": {"worker"}} {
		if slices.Sort(in[network]); !slices.Equal(in[network], want) {
			t.Errorf("network %s: %q", network, in[network])
		}
	}
}

// TestRedisWantsThePassword runs the command of the service: only who knows the password gets in.
func TestRedisWantsThePassword(t *testing.T) {
	service := service(t, "redis")
	if auth := setting(service, "REDISCLI_AUTH"); auth != password {
		t.Fatalf("its password is %q", auth)
	}
	folder := t.TempDir()
	socket := filepath.Join(folder, "socket") // unlike a port, nobody else can have it
	script := strings.NewReplacer("$$", "$", "/etc/redis.acl", filepath.Join(load(t).WorkingDir, "docs/redis.acl"), "/tmp/users.acl", filepath.Join(folder, "users.acl")).
		Replace(service.Command[2]) + " --port 0 --unixsocket " + socket + " --dir " + folder
	cmd := exec.CommandContext(t.Context(), service.Command[0], service.Command[1], script)
	cmd.Env = append(os.Environ(), "REDISCLI_AUTH="+password)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	ping := func(url string) error {
		options, err := redis.ParseURL("unix://" + url + "@" + socket)
		if err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(options)
		defer client.Close()
		return client.Ping(t.Context()).Err()
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) { // it tells nobody
		err := ping("worker:" + password)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	for _, who := range []string{"", ":" + password, "worker:x", "worker:", "producer:", "reader:" + password} {
		if err := ping(who); err == nil {
			t.Errorf("%q gets in", who)
		}
	}
}

// programs are what our images have, one each.
var programs = []string{"worker", "enqueue"}

func TestServices(t *testing.T) {
	project := load(t)
	if got := project.ServiceNames(); !slices.Equal(got, services) {
		t.Errorf("services = %v; want %v", got, services)
	}
	for name, service := range project.Services {
		for rule, wrong := range rules {
			if fault := wrong(service); fault != "" {
				t.Errorf("%s, %s: %s", name, rule, fault)
			}
		}
	}
}

// TestRulesSee: each rule notices what it is there for.
func TestRulesSee(t *testing.T) {
	for name, test := range map[string]struct {
		rule  string
		wrong func(*types.ServiceConfig)
	}{
		"latest":             {"image", func(s *types.ServiceConfig) { s.Build, s.Image = nil, "redis:latest" }},
		"no version":         {"image", func(s *types.ServiceConfig) { s.Build, s.Image = nil, "redis" }},
		"a major version":    {"image", func(s *types.ServiceConfig) { s.Build, s.Image = nil, "redis:7" }},
		"no health check":    {"health check", func(s *types.ServiceConfig) { s.HealthCheck = nil }},
		"a shell of ours":    {"health check", func(s *types.ServiceConfig) { s.HealthCheck.Test = []string{"CMD-SHELL", "/worker healthcheck"} }},
		"a curl of ours":     {"health check", func(s *types.ServiceConfig) { s.HealthCheck.Test = []string{"CMD", "curl", "healthcheck"} }},
		"NONE":               {"health check", func(s *types.ServiceConfig) { s.HealthCheck.Test = []string{"NONE", "x", "healthcheck"} }},
		"a curl of others":   {"health check", func(s *types.ServiceConfig) { s.Build, s.HealthCheck.Test = nil, []string{"CMD", "curl", "x"} }},
		"no user":            {"user", func(s *types.ServiceConfig) { s.User = "" }},
		"root":               {"user", func(s *types.ServiceConfig) { s.User = "0:0" }},
		"root by name":       {"user", func(s *types.ServiceConfig) { s.User = "root" }},
		"writable":           {"file system", func(s *types.ServiceConfig) { s.ReadOnly = false }},
		"a capability":       {"privileges", func(s *types.ServiceConfig) { s.CapAdd = []string{"NET_ADMIN"} }},
		"all capabilities":   {"privileges", func(s *types.ServiceConfig) { s.CapDrop = nil }},
		"new privileges":     {"privileges", func(s *types.ServiceConfig) { s.SecurityOpt = nil }},
		"privileged":         {"privileges", func(s *types.ServiceConfig) { s.Privileged = true }},
		"the host's network": {"privileges", func(s *types.ServiceConfig) { s.NetworkMode = "host" }},
		"no restart":         {"restart", func(s *types.ServiceConfig) { s.Restart = "" }},
		"everybody's port": {"ports", func(s *types.ServiceConfig) {
			s.Deploy, s.Ports = nil, []types.ServicePortConfig{{Target: 1, Published: "1"}}
		}},
		"all addresses": {"ports", func(s *types.ServiceConfig) {
			s.Deploy, s.Ports = nil, []types.ServicePortConfig{{Target: 1, Published: "1", HostIP: "0.0.0.0"}}
		}},
		"a port of two": {"ports", func(s *types.ServiceConfig) {
			s.Ports = []types.ServicePortConfig{{Target: 1, Published: "1", HostIP: "127.0.0.1"}}
		}},
		"a mount to write to":   {"mounts", func(s *types.ServiceConfig) { s.Volumes[0].ReadOnly = false }},
		"a mount of nothing":    {"mounts", func(s *types.ServiceConfig) { s.Volumes[0].Source += ".gone" }},
		"a volume with no name": {"mounts", func(s *types.ServiceConfig) { s.Volumes = []types.ServiceVolumeConfig{{Type: "volume", Target: "/x"}} }},
	} {
		t.Run(name, func(t *testing.T) {
			broken := service(t, "worker")
			if fault := rules[test.rule](broken); fault != "" {
				t.Fatalf("before: %s", fault)
			}
			test.wrong(&broken)
			if rules[test.rule](broken) == "" {
				t.Errorf("rule %q sees nothing wrong", test.rule)
			}
		})
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

// TestImages: what is built here is an image of one program, the same everywhere.
func TestImages(t *testing.T) {
	for name, service := range load(t).Services {
		if service.Build != nil && (!slices.Contains(programs, service.Build.Target) || service.Image != "headgate-"+service.Build.Target || service.Build.Context != load(t).WorkingDir) {
			t.Errorf("%s is %s, from %s", name, service.Image, service.Build.Context)
		}
	}
}

func TestRedisKeepsJobs(t *testing.T) {
	redis := service(t, "redis")
	if !regexp.MustCompile(`@sha256:[0-9a-f]{64}$`).MatchString(redis.Image) {
		t.Errorf("its image is %s, which others can replace", redis.Image)
	}
	settings := map[string]string{}
	words := strings.Fields(redis.Command[len(redis.Command)-1])
	for i, word := range words[:len(words)-1] {
		settings[word] = words[i+1]
	}
	for name, want := range map[string]string{"--appendonly": "yes", "--maxmemory-policy": "noeviction"} {
		if got := settings[name]; got != want {
			t.Errorf("%s is %q; want %q", name, got, want)
		}
	}
	if settings["--maxmemory"] == "" {
		t.Error("without --maxmemory the system ends a Redis that grows, instead of Redis refusing jobs")
	}
	if !slices.ContainsFunc(redis.Volumes, func(v types.ServiceVolumeConfig) bool {
		return v.Type == types.VolumeTypeVolume && v.Source != "" && v.Target == "/data"
	}) {
		t.Error("/data is no named volume: jobs go with the container")
	}
}

func TestWorker(t *testing.T) {
	worker := service(t, "worker")
	if worker.Build.Target != "worker" || worker.Entrypoint != nil || !slices.Equal(worker.Command, []string{"run"}) {
		t.Errorf("it runs %q %q of the image of %s", worker.Entrypoint, worker.Command, worker.Build.Target)
	}
	if want := (types.HealthCheckTest{"CMD", "/worker", "healthcheck"}); worker.HealthCheck == nil || !slices.Equal(worker.HealthCheck.Test, want) {
		t.Errorf("health check = %+v; want %q", worker.HealthCheck, want)
	}
	if got := worker.DependsOn["redis"].Condition; got != types.ServiceConditionHealthy {
		t.Errorf("redis need only be %q; want %q", got, types.ServiceConditionHealthy)
	}
	for name, want := range map[string]string{
		"HEADGATE_REDIS_URL": "redis://worker:" + password + "@redis:6379",
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
	if worker.Deploy == nil || worker.Deploy.Replicas == nil || *worker.Deploy.Replicas != 2 {
		t.Errorf("deploy = %+v; want two workers", worker.Deploy)
	}
	if grace := worker.StopGracePeriod; grace == nil || time.Duration(*grace) < 45*time.Second {
		t.Errorf("it is killed after %v; calls may take 30s at the end, and then there is more to do", grace)
	}
}

// TestAPI: the page and the API want a key, and nobody has the one that comes along.
func TestAPI(t *testing.T) {
	api := service(t, "api")
	if api.Build.Target != "enqueue" || api.Entrypoint != nil || !slices.Equal(api.Command, []string{"serve"}) {
		t.Errorf("it runs %q %q of the image of %s", api.Entrypoint, api.Command, api.Build.Target)
	}
	if want := (types.HealthCheckTest{"CMD", "/enqueue", "healthcheck"}); !slices.Equal(api.HealthCheck.Test, want) {
		t.Errorf("health check = %q; want %q", api.HealthCheck.Test, want)
	}
	if got := setting(api, "HEADGATE_REDIS_URL"); got != setting(service(t, "worker"), "HEADGATE_REDIS_URL") {
		t.Errorf("its Redis is %s, which is not the workers'", got)
	}
	port := portOf(t, api, "HEADGATE_HTTP_ADDR")
	if !slices.ContainsFunc(api.Ports, func(p types.ServicePortConfig) bool { return p.Target == port }) {
		t.Errorf("port %d, where the page is, is not published", port)
	}
	keys := setting(api, "HEADGATE_API_KEYS_FILE")
	at := slices.IndexFunc(api.Volumes, func(v types.ServiceVolumeConfig) bool { return v.Target == keys })
	if at < 0 {
		t.Fatalf("HEADGATE_API_KEYS_FILE = %q, where nothing is mounted", keys)
	}
	text, err := os.ReadFile(api.Volumes[at].Source)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Keys []struct{ Expires time.Time }
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Keys) == 0 {
		t.Error("a file without keys is refused")
	}
	for _, key := range file.Keys {
		if key.Expires.IsZero() || key.Expires.After(time.Now()) {
			t.Errorf("the key that comes along is valid until %v", key.Expires)
		}
	}
}

// TestPrometheusScrapes: Prometheus reads the workers and the API, and reaches them.
func TestPrometheusScrapes(t *testing.T) {
	const folder = "/dashboard/prometheus/"
	prometheus := service(t, "prometheus")
	mounted := func(name string) {
		t.Helper()
		if !slices.ContainsFunc(prometheus.Volumes, func(v types.ServiceVolumeConfig) bool {
			return v.Target == "/etc/prometheus/"+name && strings.HasSuffix(filepath.ToSlash(v.Source), folder+name)
		}) {
			t.Errorf("%s is not mounted", name)
		}
	}
	mounted("prometheus.yml")
	text, err := os.ReadFile("../../.." + folder + "prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			Job         string `yaml:"job_name"`
			MetricsPath string `yaml:"metrics_path"`
			DNS         []struct {
				Names []string
				Type  string
				Port  uint32
			} `yaml:"dns_sd_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	for _, name := range config.RuleFiles {
		mounted(name)
	}
	for name, job := range map[string]string{"worker": "headgate", "api": "headgate-api"} {
		of := service(t, name)
		port, found := portOf(t, of, "HEADGATE_ADMIN_ADDR"), false
		for _, scrape := range config.ScrapeConfigs {
			for _, dns := range scrape.DNS {
				found = found || scrape.Job == job && scrape.MetricsPath == "/metrics" && dns.Type == "A" && dns.Port == port && slices.Contains(dns.Names, name)
			}
		}
		if !found {
			t.Errorf("Prometheus reads %+v; want /metrics of every address of %s, port %d, as %s", config.ScrapeConfigs, name, port, job)
		}
		for _, service := range []types.ServiceConfig{of, prometheus} {
			if _, in := service.Networks["metrics"]; !in {
				t.Errorf("%s is not in the network metrics", service.Name)
			}
		}
	}
}

// TestGrafanaShowsTheDashboards: what is provisioned is where Grafana looks for it,
// and asks the Prometheus that there is.
func TestGrafanaShowsTheDashboards(t *testing.T) {
	grafana := service(t, "grafana")
	mounted := func(target string) string {
		for _, volume := range grafana.Volumes {
			if volume.Target == target && volume.Type == types.VolumeTypeBind {
				return volume.Source
			}
		}
		t.Fatalf("nothing is mounted on %s", target)
		return ""
	}
	read := func(name string, into any) {
		text, err := os.ReadFile(filepath.Join(mounted("/etc/grafana/provisioning"), name))
		if err == nil {
			err = yaml.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var dashboards struct {
		Providers []struct{ Options struct{ Path string } }
	}
	read("dashboards/headgate.yml", &dashboards)
	if len(dashboards.Providers) != 1 {
		t.Fatalf("%+v", dashboards)
	}
	boards, err := filepath.Glob(filepath.Join(mounted(dashboards.Providers[0].Options.Path), "*.json"))
	if err != nil || len(boards) != 2 {
		t.Errorf("%d dashboards where Grafana looks: %v", len(boards), err)
	}
	var sources struct {
		Datasources []struct{ Type, URL string }
	}
	read("datasources/prometheus.yml", &sources)
	if len(sources.Datasources) != 1 || sources.Datasources[0].Type != "prometheus" || sources.Datasources[0].URL != "http://prometheus:9090" {
		t.Errorf("%+v", sources)
	}
	service(t, "prometheus")
}

// TestGrafanaHasNoUsers: nobody can log in with a password that everybody knows.
func TestGrafanaHasNoUsers(t *testing.T) {
	grafana := service(t, "grafana")
	for name, want := range map[string]string{
		"GF_AUTH_ANONYMOUS_ENABLED": "true", "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer", "GF_AUTH_DISABLE_LOGIN_FORM": "true",
		"GF_AUTH_BASIC_ENABLED": "false", "GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION": "true",
	} {
		if got := setting(grafana, name); got != want {
			t.Errorf("%s = %q; want %s", name, got, want)
		}
	}
}

func TestSampleLimitsAreYAML(t *testing.T) {
	text, err := os.ReadFile("../../../limits.yaml")
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

// TestChecklistNamesMetrics: who watches what the checklist says watches something.
func TestChecklistNamesMetrics(t *testing.T) {
	text, err := os.ReadFile("../../../docs/production.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../../dashboard/metrics/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, file := range files {
		if source, err := os.ReadFile(file); err == nil && !strings.HasSuffix(file, "_test.go") {
			code.Write(source)
		}
	}
	names := regexp.MustCompile(`headgate_([a-z_]+)`).FindAllStringSubmatch(string(text), -1)
	if len(names) < 5 {
		t.Errorf("it names %d metrics", len(names))
	}
	for _, name := range names {
		written := func(text string) bool { return strings.Contains(code.String(), `"`+text+`"`) }
		family, own, _ := strings.Cut(name[1], "_") // of breakers, the code puts the two together
		if !written(name[0]) && !written(name[1]) && !(written("headgate_"+family+"_") && written(own)) {
			t.Errorf("there is no metric %s", name[0])
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

// portOf is the port of an address that a service listens on.
func portOf(t *testing.T, service types.ServiceConfig, name string) uint32 {
	t.Helper()
	host, number, err := net.SplitHostPort(setting(service, name))
	if err != nil || host != "" {
		t.Fatalf("%s = %q, %v; want a port on all addresses of the container", name, setting(service, name), err)
	}
	port, err := net.LookupPort("tcp", number)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(port)
}
