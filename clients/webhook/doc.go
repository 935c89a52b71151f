// Package webhook makes HTTP calls to URLs chosen by others.
//
// A [Sender] makes one call for a [Request] and returns an outcome of package clients.
// Guarantees:
//
//   - Private, loopback, link-local and metadata addresses are refused after the name was
//     resolved, unless the Config allows them. No proxy is used.
//   - Redirects are refused and end the job: they could lead anywhere, would be calls that bypass
//     the limits, and may turn a POST into a GET.
//   - With Config.Secrets, calls are signed according to Standard Webhooks 1.0.0. Jobs have no
//     secrets. webhook-id is the idempotency key, the same for all attempts of a job;
//     webhook-timestamp is the time of the attempt.
//   - If a receiver answers 410, the error is a [GoneError] and the job is archived. A Sender has
//     no memory of that: it sends the next job to the same URL.
//   - Nothing is sent twice. A call is repeated only if a reused connection broke before the
//     first byte was written.
//   - A body can have at most Config.MaxBody bytes, 1 MiB by default, headers 16 KiB and a URL
//     8 KiB. At most 64 KiB of an answer is read.
//   - Errors have the host but never the URL, whose path and query are often secrets of the
//     receiver. Path, query, sent headers and parts of them are removed from answers.
//
// Standard Webhooks treats every 4xx as a failure to be retried for days. Here those that would
// be answered the same again (400, 401 and others; see outcome) end the job at once, so that an
// operator sees them and can retry the job when the receiver is fixed.
package webhook
