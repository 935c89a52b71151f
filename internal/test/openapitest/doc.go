// Package openapitest checks that the description of the HTTP API is valid OpenAPI 3.1 and that
// requests and responses of the handlers match it.
//
// It is a separate module, so that the library for OpenAPI is not in the main go.sum.
package openapitest
