// Package ai requests completions from language models.
//
// A [Client] makes one call for a [Request], the provider's own request body, and returns a
// [Result] or an outcome of package clients. It calls OpenAI, servers compatible with its API
// (Azure, vLLM, Ollama, gateways), and Anthropic, through their Go SDKs.
//
// Providers limit both requests and tokens. [Request.Costs] returns the tokens that a request will
// use, for the costs of its job, and [Result.Actual] those that it used, to correct the costs.
//
// Guarantees:
//
//   - The request is sent unchanged, byte for byte. The provider decides about fields that this
//     package does not know.
//   - A call is sent once. The SDKs' own retries are off, because they would bypass all limits.
//   - Redirects are not followed, because they would send the key elsewhere.
//   - At most 8 MiB of an answer is read.
//   - Errors have the host and the provider's text, but never the key.
package ai
