package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/smtp"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestMeterIsTheLaw: what the meter accepts keeps the law over all windows, and
// what it refuses would have broken it.
func TestMeterIsTheLaw(t *testing.T) {
	lawful := func(times []time.Time, limit Limit) bool {
		for i := range times {
			for j := i; j < len(times); j++ {
				most := float64(limit.Burst) + limit.Rate*(times[j].Sub(times[i])+Tolerance).Seconds()
				if float64(j-i+1) > most+1e-6 {
					return false
				}
			}
		}
		return true
	}
	for round := range 200 {
		random := rand.New(rand.NewPCG(1, uint64(round)))
		limit := Limit{Rate: []float64{1, 10, 100, 1000}[random.IntN(4)], Burst: 1 + random.IntN(5)}
		m := &meter{}
		m.SetLimit("t", limit)
		now := time.Now()
		var accepted []time.Time
		for range 150 {
			now = now.Add(time.Duration(random.Float64() * 1.2 / limit.Rate * float64(time.Second)))
			wait := m.admit("t", now)
			if wait == 0 {
				accepted = append(accepted, now)
			} else if lawful(append(append([]time.Time(nil), accepted...), now), limit) {
				t.Fatalf("%+v: a lawful call was refused after %d accepted", limit, len(accepted))
			}
		}
		if !lawful(accepted, limit) {
			t.Fatalf("%+v: unlawful calls were accepted", limit)
		}
	}
}

func TestHTTP(t *testing.T) {
	h, err := NewHTTP()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	call := func(tenant string) (int, http.Header, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL(), strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Headgate-Tenant", tenant)
		request.Header.Set("Headgate-Job", "job-1")
		response, err := client.Do(request)
		if err != nil {
			return 0, nil, err
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		return response.StatusCode, response.Header, nil
	}
	expect := func(tenant string, want int) http.Header {
		t.Helper()
		status, header, err := call(tenant)
		if err != nil || status != want {
			t.Fatalf("%s: %d, %v; want %d", tenant, status, err, want)
		}
		return header
	}
	h.SetLimit("a", Limit{Rate: 0.1, Burst: 2})
	expect("a", 200)
	expect("a", 200)
	if after := expect("a", 429).Get("Retry-After"); after != "10" {
		t.Errorf("Retry-After = %q", after)
	}
	expect("%C3%BC", 200)
	h.Fail(1, 503)
	expect("b", 503)
	h.Drop(1)
	if _, _, err := call("b"); err == nil {
		t.Error("a dropped call was answered")
	}
	release := h.Hang()
	answered := make(chan int)
	go func() {
		status, _, _ := call("b")
		answered <- status
	}()
	select {
	case <-answered:
		t.Error("a hanging call was answered")
	case <-time.After(50 * time.Millisecond):
	}
	release()
	if status := <-answered; status != 200 {
		t.Errorf("after the release: %d", status)
	}
	h.SetAccountLimit(Limit{Rate: 0.1})
	expect("c", 200)
	expect("d", 429)

	stats := h.Stats()
	if stats["a"] != (Stats{Accepted: 2, Rejected: 1}) || stats["b"] != (Stats{Accepted: 1, Failed: 2}) || stats["ü"].Accepted != 1 || stats["d"].Rejected != 1 {
		t.Errorf("stats = %+v", stats)
	}
	if calls := h.Calls(); len(calls) != 9 || calls[0].Job != "job-1" || calls[0].At.IsZero() {
		t.Errorf("%d calls: %+v", len(calls), calls)
	}
}

func TestSMTP(t *testing.T) {
	s, err := NewSMTP()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.SetLimit("a", Limit{Rate: 0.1})
	send := func(tenant string) error {
		header := ""
		if tenant != "" {
			header = fmt.Sprintf("Headgate-Tenant: %s\r\nHeadgate-Job: j\r\n", tenant)
		}
		return smtp.SendMail(s.Addr(), nil, "from@sender.example", []string{"to@example.com"}, []byte(header+"Subject: x\r\n\r\nhello\r\n"))
	}
	code := func(err error) int {
		if e, ok := errors.AsType[*textproto.Error](err); ok {
			return e.Code
		}
		return 0
	}
	if err := send("a"); err != nil {
		t.Fatal(err)
	}
	if err := send("a"); code(err) != 450 || !strings.Contains(err.Error(), "4.7.0") {
		t.Errorf("over the limit: %v", err)
	}
	if err := send(""); err != nil {
		t.Error(err)
	}
	s.Fail(1, 554)
	if err := send("b"); code(err) != 554 {
		t.Errorf("told to fail: %v", err)
	}
	s.Drop(1)
	if err := send("b"); err == nil {
		t.Error("a dropped call was answered")
	}
	stats := s.Stats()
	if stats["a"] != (Stats{Accepted: 1, Rejected: 1}) || stats["sender.example"].Accepted != 1 || stats["b"].Failed != 2 {
		t.Errorf("stats = %+v", stats)
	}
}

func TestCloseEndsWhatHangs(t *testing.T) {
	h, err := NewHTTP()
	if err != nil {
		t.Fatal(err)
	}
	h.Hang()
	ended := make(chan error)
	go func() {
		request, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, h.URL(), nil)
		response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
		if err == nil {
			response.Body.Close()
		}
		ended <- err
	}()
	h.Close()
	<-ended
}
