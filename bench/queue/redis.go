package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// spent is what Redis did since it started.
type spent struct {
	commands, scripts, bytes float64
	cpu, scriptCPU           time.Duration
}

// spent asks Redis. What this question itself costs is not counted but for its CPU time.
func (b *bench) spent(ctx context.Context) (spent, error) {
	info, err := b.admin.InfoMap(ctx, "commandstats", "cpu", "stats").Result()
	if err != nil {
		return spent{}, err
	}
	var s spent
	for name, value := range info["Commandstats"] {
		n, err := field(value, "calls")
		if err != nil {
			return spent{}, err
		}
		if name == "cmdstat_info" {
			continue
		}
		s.commands += n
		if name == "cmdstat_evalsha" || name == "cmdstat_eval" {
			us, err := field(value, "usec")
			if err != nil {
				return spent{}, err
			}
			s.scripts += n
			s.scriptCPU += time.Duration(us) * time.Microsecond
		}
	}
	read := func(section, name string) float64 {
		var n float64
		if err == nil {
			n, err = strconv.ParseFloat(info[section][name], 64)
		}
		return n
	}
	s.cpu = time.Duration((read("CPU", "used_cpu_user_main_thread") + read("CPU", "used_cpu_sys_main_thread")) * float64(time.Second))
	s.bytes = read("Stats", "total_net_input_bytes") + read("Stats", "total_net_output_bytes")
	return s, err
}

func (s spent) minus(before spent) spent {
	return spent{s.commands - before.commands, s.scripts - before.scripts, s.bytes - before.bytes, s.cpu - before.cpu, s.scriptCPU - before.scriptCPU}
}

// perJob puts what Redis did for n jobs into a sample.
func (s spent) perJob(into sample, n int) {
	jobs := float64(n)
	into[commands] = s.commands / jobs
	into[scripts] = s.scripts / jobs
	into[netBytes] = s.bytes / jobs
	into[redisCPU] = micros(s.cpu) / jobs
	into[scriptCPU] = micros(s.scriptCPU) / jobs
}

// scriptP99 is the time of scripts within Redis since its statistics were reset.
func (b *bench) scriptP99(ctx context.Context) (float64, error) {
	info, err := b.admin.InfoMap(ctx, "latencystats").Result()
	if err != nil {
		return 0, err
	}
	us, err := field(info["Latencystats"]["latency_percentiles_usec_evalsha"], "p99")
	return us / 1000, err
}

// field is a number in a text such as calls=3,usec=12.
func field(text, name string) (float64, error) {
	for part := range strings.SplitSeq(text, ",") {
		if value, ok := strings.CutPrefix(part, name+"="); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("INFO: no %s in %q", name, text)
}
