package composetest

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// instruction is one of a Dockerfile: its name, and the rest of it on one line.
type instruction struct{ name, rest string }

// stages are the stages of a Dockerfile; each begins with its FROM.
func stages(t *testing.T, text string) (all [][]instruction) {
	t.Helper()
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		name = strings.ToUpper(name)
		if name == "FROM" {
			all = append(all, nil)
		}
		if len(all) == 0 {
			t.Fatalf("%q stands before FROM", line)
		}
		last := len(all) - 1
		all[last] = append(all[last], instruction{name, strings.Join(strings.Fields(rest), " ")})
	}
	return all
}

// said is what the instructions of a name say.
func said(stage []instruction, name string) (all []string) {
	for _, i := range stage {
		if i.name == name {
			all = append(all, i.rest)
		}
	}
	return all
}

// wrongWith is what a Dockerfile must not be, or nothing.
func wrongWith(t *testing.T, dockerfile, goVersion string) (faults []string) {
	t.Helper()
	all := stages(t, dockerfile)
	if len(all) != 3 {
		return []string{"it has not a stage for the compiler and one for each program"}
	}
	build := all[0]
	check := func(ok bool, fault string) {
		if !ok {
			faults = append(faults, fault)
		}
	}
	check(said(build, "FROM")[0] == "--platform=$BUILDPLATFORM golang:"+goVersion+" AS build", "the compiler is not this machine's, or not Go "+goVersion)
	platform := strings.Fields(strings.Join(said(build, "ARG"), " "))
	check(slices.Contains(platform, "TARGETOS") && slices.Contains(platform, "TARGETARCH"), "it does not ask for what it builds")
	runs := strings.Join(said(build, "RUN"), "\n")
	check(strings.Contains(runs, "CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build "), "it does not build for what is asked for, or links to what the image lacks")
	check(strings.Contains(runs, `-ldflags="-s -w `) && strings.Contains(runs, "version.stamped=$VERSION"), "the programs are not stripped, or do not know their version")
	for _, program := range programs {
		check(strings.Contains(runs+"\n", " ./cmd/"+program), "it does not build "+program)
	}
	for i, command := range []string{"serve", "run"} {
		final, program := all[1+i], []string{"enqueue", "worker"}[i]
		check(regexp.MustCompile(`^gcr\.io/distroless/static-debian\d+:nonroot AS `+program+`$`).MatchString(said(final, "FROM")[0]), "the image is not distroless, or not that of "+program)
		check(slices.Equal(said(final, "COPY"), []string{"--from=build /out/" + program + " /"}), "the image has something else than "+program)
		check(slices.Equal(said(final, "USER"), []string{"65532:65532"}), "it runs as somebody else than nonroot, or as a name that no host can check")
		check(slices.Equal(said(final, "ENTRYPOINT"), []string{`["/` + program + `"]`}) && slices.Equal(said(final, "CMD"), []string{`["` + command + `"]`}), "it does not run "+program+", without a shell")
		check(len(said(final, "RUN")) == 0 && len(said(final, "ADD")) == 0, "there is no shell to run anything, and nothing to fetch")
	}
	return faults
}

func dockerfile(t *testing.T) (text, goVersion string) {
	t.Helper()
	file, err := os.ReadFile("../../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(mod)
	if version == nil {
		t.Fatal("go.mod names no version of Go")
	}
	return string(file), string(version[1])
}

func TestDockerfile(t *testing.T) {
	text, version := dockerfile(t)
	for _, fault := range wrongWith(t, text, version) {
		t.Error(fault)
	}
	for what, change := range map[string][2]string{
		"the target's compiler": {"--platform=$BUILDPLATFORM ", ""},
		"an old compiler":       {"golang:" + version, "golang:1.20"},
		"one platform":          {" GOARCH=$TARGETARCH", ""},
		"an argument forgotten": {"ARG TARGETOS TARGETARCH", "ARG TARGETOS"},
		"cgo":                   {"CGO_ENABLED=0 ", ""},
		"debugging":             {"-s -w ", ""},
		"no version":            {"=$VERSION", "="},
		"half of it":            {" ./cmd/enqueue", ""},
		"a whole system":        {"gcr.io/distroless/static-debian12:nonroot", "debian:12"},
		"root's image":          {":nonroot", ":latest"},
		"root":                  {"USER 65532:65532", "USER root"},
		"nobody named":          {"USER 65532:65532\n", ""},
		"a shell":               {`ENTRYPOINT ["/worker"]`, "ENTRYPOINT /worker"},
		"both programs":         {"/out/worker /", "/out/ /"},
		"a step at the end":     {"USER 65532", "RUN true\nUSER 65532"},
	} {
		broken := strings.Replace(text, change[0], change[1], 1)
		if broken == text {
			t.Errorf("%s: the Dockerfile has no %q", what, change[0])
		}
		if len(wrongWith(t, broken, version)) == 0 {
			t.Errorf("%s: nothing is found wrong", what)
		}
	}
}

// TestMachines: both programs can be built for both machines without C. Whether
// each package of theirs is there for a machine takes no compiler to tell.
func TestMachines(t *testing.T) {
	for _, machine := range []string{"amd64", "arm64"} {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .GoFiles}}{{.ImportPath}}{{end}}", "./cmd/worker", "./cmd/enqueue")
		list.Dir = "../../.."
		list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+machine)
		out, err := list.CombinedOutput()
		if left := strings.TrimSpace(string(out)); err != nil || left != "" {
			t.Errorf("%s: %v\n%s", machine, err, left)
		}
	}
}
