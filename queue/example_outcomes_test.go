package queue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/queue"
)

// A handler of your own returns errors that say what the provider's answer means. The queue
// does the rest.
func ExampleHandle_outcomes() {
	worker := newWorker()
	queue.Handle(worker, SendSMS, func(_ context.Context, sms SMS) error {
		switch status, err := gateway(sms); {
		case err != nil: // it was sent, but there was no answer
			return clients.Unknown(err)
		case status == 429:
			return clients.Throttled(30*time.Second, errors.New("fewer of them"))
		case status == 402:
			return clients.AccountExhausted(0, errors.New("no credit"))
		case status >= 500:
			return clients.Retryable(fmt.Errorf("the gateway answered %d", status))
		case status >= 400:
			return clients.Permanent(fmt.Errorf("the gateway answered %d", status))
		}
		return nil
	})
	for _, name := range []string{"Ada", "Bob", "Cleo", "Dan", "Eve", "Finn"} {
		outcome, err := worker.Call(context.Background(), SendSMS.Job("acme", SMS{To: name}))
		fmt.Println(outcome, err)
	}
	// Output:
	// done <nil>
	// throttled fewer of them
	// throttled no credit
	// retried the gateway answered 503
	// archived the gateway answered 400
	// unknown no answer
}

// gateway is a fake provider.
func gateway(sms SMS) (status int, err error) {
	if sms.To == "Finn" {
		return 0, errors.New("no answer")
	}
	return map[string]int{"Ada": 202, "Bob": 429, "Cleo": 402, "Dan": 503, "Eve": 400}[sms.To], nil
}
