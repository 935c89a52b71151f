// Package stripetest holds clients/payment and its sandbox against stripe-mock,
// which knows the parameters and the answers of Stripe's API by its OpenAPI
// description.
//
// It is a module of its own, so that stripe-mock stays out of everybody else's
// go.sum.
package stripetest
