// Package payment makes payments with Stripe: it creates, confirms, captures and refunds
// PaymentIntents.
//
// A [Sender] makes one call for a [Payload] and returns a [Result] or an outcome of package
// clients. Guarantees:
//
//   - Every call has the job's idempotency key, the same for all attempts. A job without a key
//     is refused, because Stripe's library would generate a new one for each attempt.
//   - Nothing is sent that could charge twice: an attempt is not sent if Stripe may have
//     forgotten the key of the first one. It ends as permanent and unknown, with the text
//     "unknown: a person has to decide".
//   - This package sends nothing twice. The library's own retries are off. A call is repeated
//     only if a reused connection broke before the first byte was written.
//   - No error and no [Result] has the account key or the client secret of a PaymentIntent.
//
// # Stripe's idempotency
//
// Once Stripe has begun to execute the first request with a key, it stores the answer, including
// declines and 500 errors, and returns it for all later requests
// (https://docs.stripe.com/api/idempotent_requests). So a declined job stays declined: to charge
// again after the customer changed something, enqueue a new job. A 500 that Stripe calls final
// stays a 500 for a day, and only a person can find out what happened to the payment. Refusals
// for a rate limit, an invalid account key or invalid parameters come earlier and are not
// stored.
//
// The metadata of created objects has the job's id as headgate_job. With it, a payment with an
// unknown outcome can be found in Stripe's dashboard.
//
// # Order
//
// The queue's limits can make payments of one customer go one after another. The producer sets
// the attribute of each job, because the payload is not read for it:
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
