// Package openapitest holds the HTTP API against its own description: the document
// is OpenAPI 3.1, and what the handlers take and answer is what it says.
//
// It is a module of its own, so that the library that reads such documents stays
// out of everybody else's go.sum.
package openapitest
