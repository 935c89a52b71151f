// Package webhook makes HTTP calls to addresses that others chose.
//
// A [Sender] makes one call for a [Request] and says what came of it; package
// clients has the words. What always holds:
//
//   - Private, loopback, link-local and metadata addresses are refused, after
//     the name was resolved, unless the Config allows them. No proxy is used.
//   - Redirects are refused, and end the job: one could lead anywhere, would be a
//     call that no limit knows of, and of a POST it may make a GET.
//   - With Config.Secrets, calls are signed as Standard Webhooks 1.0.0 has it.
//     Secrets stand in no job. webhook-id is the idempotency key, the same for
//     all attempts of a job; webhook-timestamp is that of the attempt.
//   - A receiver that answers 410 is named as gone ([GoneError]), and the job is
//     archived. Nothing is remembered: the next job to it is sent again.
//   - Nothing is sent twice. The one repeat is over a kept connection that broke
//     before the first byte was written.
//   - A body has at most Config.MaxBody bytes, 1 MiB by default; headers have at
//     most 16 KiB, and a URL 8 KiB. Of an answer, no more than 64 KiB is read.
//   - Errors name the host and never the URL, whose path and query are often
//     the receiver's secret; these, their parts and those of headers that were
//     sent are cut out of answers.
//
// Standard Webhooks calls every 4xx a failure to be tried again for days. Here
// those that would be answered so again (400, 401, 404 and others; see
// [outcome]) end the job at once, so that an operator sees them and can send it
// again when the receiver was mended.
package webhook
