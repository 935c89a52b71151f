package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/clients/payment"
	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/internal/test/until"
	"github.com/headgate/headgate/queue"
	"github.com/headgate/headgate/queue/inspect"
	"github.com/headgate/headgate/queue/lifecycle"
)

// TestPaymentWhoseKeyIsForgotten: a charge whose answer was lost is not asked for
// again when Stripe may have forgotten its key. The queue tells the client when
// the first attempt was, across runs and workers.
func TestPaymentWhoseKeyIsForgotten(t *testing.T) {
	server := redistest.Start(t)
	stripe, err := sandbox.NewStripe()
	if err != nil {
		t.Fatal(err)
	}
	defer stripe.Close()
	stripe.Inject(func(int) sandbox.StripeFault { return sandbox.StripeCutAfter })
	t.Setenv(prefix+"STRIPE_KEY", "sk_test_1")
	t.Setenv(prefix+"STRIPE_URL", stripe.URL())
	quietly(t, server.URL(), "queues: {payment: {kinds: [payment]}}")
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan string, 1)
	go func() {
		_, errText, _ := command(ctx, "run")
		ran <- errText
	}()
	defer func() {
		stop()
		if errText := <-ran; errText != "" {
			t.Error(errText)
		}
	}()

	client := queue.NewClient(server.Client())
	receipt, err := client.Enqueue(t.Context(), queue.Job{Kind: "payment", Tenant: "acme", Payload: payment.Payload{
		Action: payment.CreateAndConfirm, Amount: new(int64(1999)), Currency: "usd", PaymentMethod: "pm_card_visa",
	}})
	if err != nil {
		t.Fatal(err)
	}
	aDayPasses(t, server.Client(), "payment", receipt.ID)

	result := ended(t, client, "payment", receipt.ID)
	page, err := inspect.New(server.Client()).ListJobs(t.Context(), "payment", inspect.JobQuery{State: lifecycle.StateArchived})
	jobs := page.Jobs
	if err != nil || len(jobs) != 1 || jobs[0].Outcome != lifecycle.Unknown ||
		!strings.HasPrefix(jobs[0].Reason, "unknown: a person has to decide: not sent: the first attempt was 24h") || !strings.Contains(jobs[0].Reason, receipt.ID) {
		t.Errorf("%+v, %v", jobs, err)
	}
	if len(stripe.Calls()) != 1 || len(stripe.Ledger()) != 1 || result.State != "archived" {
		t.Errorf("%d requests, %d charges, %+v; want one of each, and the job archived", len(stripe.Calls()), len(stripe.Ledger()), result)
	}
}

// TestPaymentOfAWorkerThatDied: a payment whose first worker died may have been made, with other parameters if that
// worker had another version.
func TestPaymentOfAWorkerThatDied(t *testing.T) {
	server := redistest.Start(t)
	stripe := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"error":{"type":"idempotency_error","message":"Keys for idempotent requests can only be used with the same parameters."}}`)
	}))
	defer stripe.Close()
	t.Setenv(prefix+"STRIPE_KEY", "sk_test_1")
	t.Setenv(prefix+"STRIPE_URL", stripe.URL)
	quietly(t, server.URL(), "queues: {payment: {kinds: [payment]}}")
	client := queue.NewClient(server.Client())
	ids := map[lifecycle.Outcome]string{}
	for tenant, want := range map[string]lifecycle.Outcome{"acme": lifecycle.Unknown, "globex": lifecycle.Archived} {
		receipt, err := client.Enqueue(t.Context(), queue.Job{Kind: "payment", Tenant: tenant, Payload: json.RawMessage(paymentPayload)})
		if err != nil {
			t.Fatal(err)
		}
		ids[want] = receipt.ID
		if want == lifecycle.Unknown {
			if err := server.Client().HSet(t.Context(), "asynq:{payment}:t:"+receipt.ID, "hg_unsure", "1").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	running(t)
	for want, id := range ids {
		if result := ended(t, client, "payment", id); result.Outcome != want {
			t.Errorf("%+v; want it %s", result, want)
		}
	}
}

// aDayPasses while a job waits for its second attempt.
func aDayPasses(t *testing.T, client redis.UniversalClient, queue, id string) {
	t.Helper()
	task := "asynq:{" + queue + "}:t:" + id
	until.Done(t, "the job waits for its second attempt", func() bool { return client.HGet(t.Context(), task, "state").Val() == "retry" })
	var micros int64
	var owner string
	if _, err := fmt.Sscan(client.HGet(t.Context(), task, "hg_first").Val(), &micros, &owner); err != nil {
		t.Fatal(err)
	}
	if age := time.Since(time.UnixMicro(micros)); age < 0 || age > time.Minute {
		t.Errorf("the first attempt is said to be %v old", age)
	}
	micros -= (24 * time.Hour).Microseconds()
	if err := client.HSet(t.Context(), task, "hg_first", fmt.Sprint(micros, " ", owner)).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestMailWhoseKeyIsForgotten: a mail whose answer was lost is not sent again when
// Resend may have forgotten its key.
func TestMailWhoseKeyIsForgotten(t *testing.T) {
	server := redistest.Start(t)
	resend, err := sandbox.NewResend(sandbox.ResendConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer resend.Close()
	resend.DropAnswers(1)
	t.Setenv(prefix+"EMAIL_PROVIDER", "resend")
	t.Setenv(prefix+"RESEND_API_KEY", "re_1")
	t.Setenv(prefix+"RESEND_URL", resend.URL())
	quietly(t, server.URL(), "queues: {email: {kinds: [email]}}")
	running(t)

	client := queue.NewClient(server.Client())
	receipt, err := client.Enqueue(t.Context(), queue.Job{Kind: "email", Tenant: "acme", Payload: json.RawMessage(mail), Retention: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	aDayPasses(t, server.Client(), "email", receipt.ID)
	result := ended(t, client, "email", receipt.ID)
	if result.Outcome != lifecycle.Unknown || !strings.Contains(result.Err, "Resend forgets idempotency keys") || len(resend.Calls()) != 1 {
		t.Errorf("%d calls, %+v; want one, and the job archived as unknown", len(resend.Calls()), result)
	}
}
