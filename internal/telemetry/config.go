// Package telemetry exports spans and metrics, as OpenTelemetry's own variables say.
package telemetry

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// OpenTelemetry's variables that decide whether and where telemetry goes. The exporters read the
// others.
const (
	otelDisabled = "OTEL_SDK_DISABLED"
	otelSampler  = "OTEL_TRACES_SAMPLER"
	otelArgument = "OTEL_TRACES_SAMPLER_ARG"
	otlp         = "OTEL_EXPORTER_OTLP_"
)

// Config is the content of those variables.
type Config struct {
	traces, metrics signal
	secrets         []string
}

// signal is where one kind of telemetry goes.
type signal struct {
	exporter string // "otlp", "console"; "": nowhere
	protocol string // of otlp
	endpoint string // of otlp, for people
}

// Read reads the variables. It rejects values that the exporters would ignore silently,
// which would export nothing, or all spans instead of a sample.
func Read() (Config, error) {
	c, err := ReadMetrics()
	if disabled() {
		return c, nil
	}
	return c, errors.Join(c.read("TRACES", &c.traces, "http/protobuf", "http/json", "grpc"), err)
}

// ReadMetrics reads the variables for a program that makes no spans.
func ReadMetrics() (Config, error) {
	var c Config
	if disabled() {
		return c, nil
	}
	return c, c.read("METRICS", &c.metrics, "http/protobuf", "grpc")
}

func disabled() bool { return strings.EqualFold(otelVariable(otelDisabled), "true") }

// read reads where a kind of telemetry goes, which can be sent by some protocols.
func (c *Config) read(kind string, s *signal, protocols ...string) error {
	variable := "OTEL_" + kind + "_EXPORTER"
	endpoint := otelVariable(otlp+"ENDPOINT") != "" || otelVariable(otlp+kind+"_ENDPOINT") != ""
	switch exporter := otelVariable(variable); {
	case exporter == "none" || exporter == "" && !endpoint:
		return nil
	case exporter == "console":
		s.exporter = exporter
	case exporter == "otlp" || exporter == "":
		s.exporter = "otlp"
	default:
		return fmt.Errorf("%s: %.40q is not one of otlp, console, none", variable, exporter)
	}
	var errs []error
	if kind == "TRACES" {
		errs = append(errs, checkSampler())
	}
	if s.exporter == "otlp" {
		errs = append(errs, c.readOTLP(kind, s, protocols))
	}
	return errors.Join(errs...)
}

// otelVariable returns the value of a variable. OpenTelemetry treats an empty one as unset.
func otelVariable(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// of returns the value of an exporter's variable, and its name: the one for a kind of
// telemetry, or the one for all.
func of(kind, name string) (variable, value string) {
	if value := otelVariable(otlp + kind + "_" + name); value != "" {
		return otlp + kind + "_" + name, value
	}
	return otlp + name, otelVariable(otlp + name)
}

func checkSampler() error {
	switch sampler := strings.ToLower(otelVariable(otelSampler)); sampler {
	case "", "always_on", "always_off", "parentbased_always_on", "parentbased_always_off":
	case "traceidratio", "parentbased_traceidratio":
		argument := otelVariable(otelArgument)
		if ratio, err := strconv.ParseFloat(argument, 64); argument != "" && (err != nil || !(ratio >= 0 && ratio <= 1)) {
			return fmt.Errorf("%s: %.40q is not a ratio from 0 to 1", otelArgument, argument)
		}
	default:
		return fmt.Errorf("%s: %.40q is not one of always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off, parentbased_traceidratio", otelSampler, sampler)
	}
	return nil
}

// readOTLP returns errors without the values, which may contain secrets.
func (c *Config) readOTLP(kind string, s *signal, protocols []string) error {
	var errs []error
	variable, protocol := of(kind, "PROTOCOL")
	protocol = cmp.Or(protocol, "http/protobuf")
	if kind == "METRICS" && variable == otlp+"PROTOCOL" && protocol == "http/json" {
		protocol = "http/protobuf" // it was chosen for traces, and a collector takes both at one address
	}
	if s.protocol = protocol; !slices.Contains(protocols, protocol) {
		errs = append(errs, fmt.Errorf("%s: %.40q is not one of %s, by which %s can be sent", variable, protocol, strings.Join(protocols, ", "), strings.ToLower(kind)))
	}
	variable, endpoint := of(kind, "ENDPOINT")
	u, err := url.Parse(endpoint)
	switch isURL := err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https"); {
	case endpoint == "" && protocol == "grpc":
		s.endpoint = "localhost:4317"
	case endpoint == "":
		s.endpoint = "localhost:4318"
	case isURL:
		if password, ok := u.User.Password(); ok {
			c.secrets = append(c.secrets, password)
		}
		path := u.Path
		if protocol != "grpc" && variable == otlp+"ENDPOINT" {
			path = strings.TrimSuffix(path, "/") + "/v1/" + strings.ToLower(kind)
		}
		// Without the user and the query: exporters do not send them, and they may be secret.
		s.endpoint = (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: path}).String()
	case protocol == "grpc" && err == nil && !strings.Contains(endpoint, "@"):
		s.endpoint = endpoint // a target of gRPC's own, such as dns:///collector:4317
	default:
		errs = append(errs, fmt.Errorf("%s: not a URL such as http://collector:4318", variable))
	}
	for _, variable := range []string{otlp + "HEADERS", otlp + kind + "_HEADERS"} {
		values, err := headerValues(otelVariable(variable))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", variable, err))
		}
		c.secrets = append(c.secrets, values...)
	}
	return errors.Join(errs...)
}

// headerValues returns the values of a list name=value,name=value, each percent-encoded, and
// the part of an authorization after its scheme.
func headerValues(list string) (values []string, err error) {
	if list == "" {
		return nil, nil
	}
	for i, pair := range strings.Split(list, ",") {
		name, encoded, ok := strings.Cut(pair, "=")
		value, escape := url.PathUnescape(encoded)
		if name = strings.TrimSpace(name); !ok || escape != nil || name == "" || strings.ContainsFunc(name, notOfToken) {
			return nil, fmt.Errorf("header %d is not name=value with a percent-encoded value", i+1)
		}
		value = strings.TrimSpace(value)
		values = append(values, value)
		if _, credentials, ok := strings.Cut(value, " "); ok {
			values = append(values, strings.TrimSpace(credentials))
		}
	}
	return values, nil
}

func notOfToken(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

func (s signal) String() string {
	switch s.exporter {
	case "otlp":
		return "otlp, " + s.protocol + " to " + s.endpoint
	case "console":
		return "console"
	}
	return "none"
}

// Traces and Metrics say, for people, where telemetry goes; "none": nowhere.
func (c Config) Traces() string  { return c.traces.String() }
func (c Config) Metrics() string { return c.metrics.String() }
