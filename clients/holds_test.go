package clients_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/clients"
)

func TestHolds(t *testing.T) {
	now := time.Now()
	cause := errors.New("status 429")
	for name, test := range map[string]struct {
		err  error
		want clients.Hold
	}{
		"done":      {nil, clients.Hold{}},
		"tenant":    {clients.Throttled(30*time.Second, cause), clients.Hold{Scope: clients.TenantScope, For: 30 * time.Second, Long: "30 s"}},
		"no time":   {clients.Throttled(0, cause), clients.Hold{Scope: clients.TenantScope, Long: "1 s by default"}},
		"account":   {clients.AccountThrottled(time.Minute, cause), clients.Hold{Scope: clients.AccountScope, For: time.Minute, Long: "1 min"}},
		"postponed": {clients.PostponeUntil(now.Add(24*time.Hour), cause), clients.Hold{Scope: clients.JobScope, For: 24 * time.Hour, Long: "24 h"}},
		"over":      {clients.PostponeUntil(now.Add(-time.Hour), cause), clients.Hold{Scope: clients.JobScope, Long: "0 s"}},
		"again":     {clients.RepeatAt(now.Add(5*time.Second), cause), clients.Hold{Scope: clients.JobScope, For: 5 * time.Second, Long: "5 s, and longer each time"}},
		"odd":       {clients.PostponeUntil(now.Add(90*time.Second), cause), clients.Hold{Scope: clients.JobScope, For: 90 * time.Second, Long: "1m30s"}},
		"permanent": {clients.Permanent(cause), clients.Hold{Scope: clients.JobScope, Long: "for good"}},
		"undecided": {clients.Undecided(cause), clients.Hold{Scope: clients.JobScope, Long: "for good"}},
		"unknown":   {clients.Unknown(cause), clients.Hold{Scope: clients.JobScope, Long: "for good, unless a repeat is safe"}},
		"retryable": {clients.Retryable(cause), clients.Hold{Scope: clients.JobScope, Long: "1 s, doubling up to 10 min"}},
		"any other": {cause, clients.Hold{Scope: clients.JobScope, Long: "1 s, doubling up to 10 min"}},
	} {
		err := test.err
		if err != nil {
			err = fmt.Errorf("send: %w", err)
		}
		if got := clients.Holds(err, now); got != test.want {
			t.Errorf("%s: %+v; want %+v", name, got, test.want)
		}
	}
}
