package payment_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/stripe/stripe-go/v85"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/payment"
	"github.com/headgate/headgate/clients/sandbox"
)

func ExampleNew() {
	provider, err := sandbox.NewStripe()
	if err != nil {
		panic(err)
	}
	defer provider.Close()
	sender, err := payment.New(payment.Config{Key: "sk_test_example", URL: provider.URL()}) // leave the URL out
	if err != nil {
		panic(err)
	}
	defer sender.Close()

	call := clients.Call{Job: "1", Tenant: "acme", Attempt: 1, IdempotencyKey: "acme:order-7"}
	order := payment.Payload{
		Action: payment.CreateAndConfirm, Amount: new(int64(1999)), Currency: "usd",
		PaymentMethod: "pm_card_visa", OffSession: true,
	}
	for range 2 { // as after a lost answer
		result, err := sender.Send(context.Background(), call, order)
		fmt.Println(result.Status, result.Amount, result.Currency, result.Replayed, err)
	}
	fmt.Println(len(provider.Ledger()), "charge")
	// Output:
	// succeeded 1999 usd false <nil>
	// succeeded 1999 usd true <nil>
	// 1 charge
}

func ExampleSender_Send_declined() {
	provider, err := sandbox.NewStripe()
	if err != nil {
		panic(err)
	}
	defer provider.Close()
	sender, err := payment.New(payment.Config{Key: "sk_test_example", URL: provider.URL()})
	if err != nil {
		panic(err)
	}
	defer sender.Close()

	_, err = sender.Send(context.Background(), clients.Call{Job: "1", IdempotencyKey: "1"}, payment.Payload{
		Action: payment.CreateAndConfirm, Amount: new(int64(1999)), Currency: "usd",
		PaymentMethod: "pm_card_visa_chargeDeclinedInsufficientFunds",
	})
	_, permanent := errors.AsType[*clients.PermanentError](err)
	answer, _ := errors.AsType[*stripe.Error](err)
	fmt.Println(permanent, answer.Code, answer.DeclineCode)
	// Output: true card_declined insufficient_funds
}

func ExamplePayload_Validate() {
	var order payment.Payload
	err := json.Unmarshal([]byte(`{"action":"create","amount":0,"currency":"USD"}`), &order)
	fmt.Println(err)
	fmt.Println(order.Validate())
	fmt.Println(json.Unmarshal([]byte(`{"action":"create","amount":19.99}`), &order))
	// Output:
	// <nil>
	// amount: 0 is not above 0
	// currency: must be three lower-case letters such as usd, not "USD"
	// amount: must be a whole number of the smallest unit, such as 1999 for 19.99, not number 19.99
}
