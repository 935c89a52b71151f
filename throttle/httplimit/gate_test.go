package httplimit

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAnswered(t *testing.T) {
	broken := errors.New("broken")
	tests := map[string]struct {
		takes time.Duration
		err   error
		want  int // 0: no answer in time
		late  int
	}{
		"in time":         {time.Second, nil, 7, 0},
		"late":            {3 * time.Second, nil, 0, 7},
		"an error":        {time.Second, broken, 0, 0},
		"an error, later": {3 * time.Second, broken, 0, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
				defer stop()
				late := 0
				begin := time.Now()
				got, err := answered(ctx, func() (int, error) {
					time.Sleep(test.takes)
					return 7, test.err
				}, func(value int) { late = value })
				took := time.Since(begin)
				time.Sleep(time.Minute)
				synctest.Wait()
				if took > 2*time.Second || late != test.late || err == nil && got != test.want {
					t.Errorf("answer %d, %v after %v, late %d; want %d, late %d", got, err, took, late, test.want, test.late)
				}
				if test.takes > 2*time.Second && !errors.Is(err, context.DeadlineExceeded) || test.takes < 2*time.Second && err != test.err {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

func TestLogOncePerSecond(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
		said := logOncePerSecond()
		r := httptest.NewRequest("GET", "/", nil)
		for range 25 { // for 2.4 s
			said(r, errors.New("no Redis"))
			time.Sleep(100 * time.Millisecond)
		}
		if n := strings.Count(out.String(), "no Redis"); n != 3 {
			t.Errorf("%d lines of 25 errors in 2.4 s; want 3:\n%s", n, out.String())
		}
	})
}
