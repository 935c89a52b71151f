// Package stripetest compares clients/payment and its sandbox with stripe-mock, which implements
// the parameters and answers of Stripe's API from its OpenAPI description.
//
// It is a separate module, so that stripe-mock is not in the main go.sum.
package stripetest
