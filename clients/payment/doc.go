// Package payment makes payments over Stripe: it creates, confirms and captures
// PaymentIntents, and refunds them.
//
// A [Sender] makes one call for a [Payload] and says what came of it; package
// clients has the words. What always holds:
//
//   - Every call carries the job's idempotency key, the same for all attempts. A
//     job without a key is refused: Stripe's library would make up a new one for
//     each attempt.
//   - Nothing is sent that could charge twice: an attempt that comes when Stripe
//     may have forgotten the key of the first one is not sent. It ends as
//     permanent and unknown, with the words "unknown: a person has to decide".
//   - Nothing is sent twice by this package. The library's own retries are off.
//     The one repeat is over a kept connection that broke before the first byte
//     was written.
//   - The key of the account, and the client secrets of PaymentIntents, are in no
//     error and in no [Result].
//
// # What Stripe remembers
//
// Stripe keeps the answer to the first request of a key, whatever it was, from
// the moment at which it began to work on it, and gives it to all later ones:
// declines and errors 500, too (https://docs.stripe.com/api/idempotent_requests).
// So a declined job stays declined: to charge again, after the customer changed
// something, enqueue a new job. And a 500 that Stripe itself calls final can be
// asked for again for a day and stays a 500; only a person can tell what became
// of the payment. Refusals for a rate, for a wrong account key and for invalid
// parameters come before that and are not kept.
//
// The job's id stands in the metadata of what was created, as headgate_job: by
// it a payment whose outcome is unknown is found in Stripe's dashboard.
//
// # Order
//
// Payments of one customer go one after another when the queue's limits say so;
// the producer gives each job the attribute (the payload is not read for it):
//
//	queues:
//	  payments:
//	    kinds: [payment]
//	    limits:
//	      - name: account          # Stripe's own: 100/s live, 25/s in a sandbox
//	        algorithm: leaky_bucket
//	        rate: 25/s
//	      - name: customer         # one after another
//	        per: [customer]
//	        concurrency: 1
//
//	enqueue send --kind payment --tenant acme --attribute customer=cus_123 --payload …
package payment
