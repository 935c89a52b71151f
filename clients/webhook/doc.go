// Package webhook makes HTTP calls to addresses that others chose.
//
// A [Sender] makes one call for a [Request] and says what came of it; package
// clients has the words. What always holds:
//
//   - Private, loopback, link-local and metadata addresses are refused, after
//     the name was resolved, unless the Config allows them. No proxy is used.
//   - Redirects are not followed: a redirect could lead anywhere.
//   - Nothing is sent twice. The one repeat is over a kept connection that broke
//     before the first byte was written.
//   - Of an answer, no more than 64 KiB is read.
//   - Errors name the host and never the URL, whose path and query are often
//     the receiver's secret; headers that were sent are cut out of answers.
package webhook
