package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/clients/payment"
	"github.com/headgate/headgate/clients/sandbox"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/queue"
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
	// A day passes while it waits for its second attempt.
	task := "asynq:{payment}:t:" + receipt.ID
	for deadline := time.Now().Add(10 * time.Second); server.Client().HGet(t.Context(), task, "state").Val() != "retry"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the first attempt did not fail")
		}
	}
	var micros int64
	var owner string
	if _, err := fmt.Sscan(server.Client().HGet(t.Context(), task, "hg_first").Val(), &micros, &owner); err != nil {
		t.Fatal(err)
	}
	if age := time.Since(time.UnixMicro(micros)); age < 0 || age > 20*time.Second {
		t.Errorf("the first attempt is said to be %v old", age)
	}
	micros -= (24 * time.Hour).Microseconds()
	if err := server.Client().HSet(t.Context(), task, "hg_first", fmt.Sprint(micros, " ", owner)).Err(); err != nil {
		t.Fatal(err)
	}

	result := ended(t, client, "payment", receipt.ID)
	jobs, _, err := queue.ListArchived(t.Context(), server.Client(), "payment", "", 0)
	if err != nil || len(jobs) != 1 || jobs[0].Outcome != queue.Unknown ||
		!strings.HasPrefix(jobs[0].Reason, "unknown: a person has to decide: the first attempt was 24h") || !strings.Contains(jobs[0].Reason, receipt.ID) {
		t.Errorf("%+v, %v", jobs, err)
	}
	if len(stripe.Calls()) != 1 || len(stripe.Ledger()) != 1 || result.State != "archived" {
		t.Errorf("%d requests, %d charges, %+v; want one of each, and the job archived", len(stripe.Calls()), len(stripe.Ledger()), result)
	}
}
