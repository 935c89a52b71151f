// Package browsertest tests the dashboard with a real Chromium and a real Redis, and with
// `worker run` and `worker dev` as processes.
//
// Each Go test starts the processes and runs one file of scenarios for Node and Playwright.
// Scenarios ask Go over HTTP to do what they cannot, such as killing the worker. All tests
// share one Chromium.
//
// `make images` takes the pictures in docs/img.
package browsertest
