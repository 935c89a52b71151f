// Package email sends mail over SMTP, or with the API of Amazon SES or Resend.
//
// A [Sender], an [SES] or a [Resend] sends one [Message] to one provider and returns an outcome
// of package clients; the tables are at outcome, sesOutcome and resendOutcome. Guarantees:
//
//   - A message goes to all of its recipients or to none: if a mail server refuses one of them,
//     the message is not sent.
//   - Over SMTP, the Message-ID is the same for all attempts of a job, so that receivers can
//     detect a repeat. Resend gets the job's idempotency key and sends only once. SES supports
//     neither.
//   - Nothing is sent twice. A call is repeated only if a reused connection was closed before it
//     accepted anything of the message: with SMTP the sender, with HTTP a byte.
//   - No content of a message can add a header or a recipient.
//   - Errors never have a password or a key, or what a server says about one.
package email
