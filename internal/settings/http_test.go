package settings

import (
	"fmt"
	"strings"
	"testing"
)

// The health check goes where the server says that it is ready.
func TestHealthURL(t *testing.T) {
	for want, h := range map[string]HTTP{
		"http://127.0.0.1:9090/readyz":  {HTTPAddr: "127.0.0.1:9090"},
		"http://127.0.0.1:80/readyz":    {HTTPAddr: ":80"},
		"http://127.0.0.1:81/readyz":    {HTTPAddr: "[::]:81"},
		"https://10.0.0.1:443/readyz":   {HTTPAddr: "10.0.0.1:443", TLSCert: "x"},
		"http://127.0.0.1:9191/readyz":  {HTTPAddr: ":443", TLSCert: "x", AdminAddr: "0.0.0.0:9191"},
		"http://localhost:9192/readyz":  {HTTPAddr: ":443", AdminAddr: "localhost:9192"},
		"http://[::1]:9193/readyz":      {HTTPAddr: "[::1]:9193"},
		"http://127.0.0.1:9194/readyz":  {HTTPAddr: "0.0.0.0:9194"},
		"error: port 0 is a free one, ": {HTTPAddr: "127.0.0.1:0"},
	} {
		got, err := h.HealthURL()
		if err != nil {
			got = "error: " + err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%+v: %s; want %s", h, got, want)
		}
	}
}

func TestCheckHTTP(t *testing.T) {
	ok := Enqueue{RedisFullAt: 75}
	for want, h := range map[string]HTTP{
		`HTTP_ADDR: "x" is not host:port`:     {Enqueue: ok, HTTPAddr: "x"},
		`ADMIN_ADDR: "x" is not host:port`:    {Enqueue: ok, HTTPAddr: ":1", AdminAddr: "x"},
		"ADMIN_PPROF: it needs":               {Enqueue: ok, HTTPAddr: ":1", AdminPprof: true},
		"TLS_CERT: it needs":                  {Enqueue: ok, HTTPAddr: ":1", TLSCert: "x"},
		"TLS_KEY: it needs":                   {Enqueue: ok, HTTPAddr: ":1", TLSKey: "x"},
		"REDIS_FULL_AT: 0 must be 1 to 100":   {HTTPAddr: ":1"},
		"REDIS_FULL_AT: 101 must be 1 to 100": {HTTPAddr: ":1", Enqueue: Enqueue{RedisFullAt: 101}},
		"":                                    {Enqueue: ok, HTTPAddr: ":1", AdminAddr: ":2", AdminPprof: true},
	} {
		said := ""
		h.Check(func(name, format string, args ...any) { said += name + ": " + fmt.Sprintf(format, args...) })
		if !strings.HasPrefix(said, want) || want == "" && said != "" {
			t.Errorf("%+v: %q; want %q", h, said, want)
		}
	}
}
