// Package ai asks language models for completions.
//
// A [Client] makes one call for a [Request], which is the provider's own request
// body, and answers with a [Result] or with an error that says what to do next;
// package clients has the words. It speaks to OpenAI and to everything that
// copies its API (Azure, vLLM, Ollama, gateways), and to Anthropic, through their
// Go SDKs.
//
// Providers meter twice: requests, and tokens. [Estimate] says what a request
// will take of limits with the unit "tokens", for the job's costs, and
// [Result.Actual] what it took, for settling.
//
// What always holds:
//
//   - The request goes out byte for byte as it came in: fields that this package
//     does not know are the provider's to accept or to refuse.
//   - A call is sent once. The SDKs' own retries are off, for they would pass by
//     every limit.
//   - Redirects are not followed: they would carry the key elsewhere.
//   - Of an answer, no more than 8 MiB is read.
//   - Errors name the host, and hold the provider's words, but never the key.
package ai
