// Package browsertest tests the operators' page as its users meet it: a real
// Chromium, `worker run` and `worker dev` as processes, a real Redis.
//
// The tests of Go start what is needed and run one scenario each, a file in
// scenarios for Node and Playwright. What a scenario cannot do itself, such as
// killing the worker, it asks of Go over HTTP. One Chromium serves them all.
//
// `make images` takes the pictures in docs/img.
package browsertest
