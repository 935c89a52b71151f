// Package sms defines a kind of job. The producer and the worker share it, so that a payload
// of another type does not compile.
//
//	HEADGATE_LIMITS_FILE=docs/examples/sms/limits.yaml go run ./docs/examples/sms/worker
//	go run ./docs/examples/sms/enqueue +4915112345678
package sms

import "github.com/headgate/headgate/queue"

// Message is the payload of a job.
type Message struct{ To, Text string }

// Send is the kind of jobs that send one message.
const Send queue.Kind[Message] = "sms"
