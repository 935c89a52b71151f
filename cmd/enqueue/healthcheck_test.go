package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/test/redistest"
)

func TestHealthcheck(t *testing.T) {
	t.Setenv("HEADGATE_HTTP_ADDR", redistest.FreeAddr(t))
	check := func() (errText string, code int) {
		_, errText, code = enqueue(t, "", "healthcheck")
		return errText, code
	}
	if errText, code := check(); code != exitFailure || !strings.Contains(errText, "no answer from the address in HEADGATE_ADMIN_ADDR") {
		t.Errorf("before: %q, exit %d", errText, code)
	}
	server := redistest.Start(t)
	t.Setenv("HEADGATE_REDIS_URL", server.URL())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		_, _, code := enqueueFrom(ctx, strings.NewReader(""), "serve")
		ended <- code
	}()
	until := func(want int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) { // only the server knows when
			errText, code := check()
			if code == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("exit %d, %s; want %d", code, errText, want)
			}
		}
	}
	until(exitOK)
	server.Kill()
	until(exitFailure)
	if errText, _ := check(); !strings.Contains(errText, "not ready: no Redis answers") {
		t.Errorf("without its Redis: %q", errText)
	}
	stop()
	if code := <-ended; code != exitOK {
		t.Errorf("serve ended with %d", code)
	}
	if _, errText, code := enqueue(t, "", "healthcheck", "--http", "9090"); code != exitUsage || !strings.Contains(errText, "HEADGATE_HTTP_ADDR") {
		t.Errorf("a wrong address: %q, exit %d", errText, code)
	}
}
