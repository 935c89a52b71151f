// Package email sends mail: over SMTP, or by the API of Amazon SES or of Resend.
//
// A [Sender], an [SES] or a [Resend] hands one [Message] to one provider and says
// what came of it; package clients has the words, and the tables are at outcome,
// sesOutcome and resendOutcome. What always holds:
//
//   - A message goes to all of its recipients or to none: the first that a mail
//     server refuses refuses the message.
//   - Over SMTP the Message-ID is the same over all attempts of a job, so that
//     receivers can tell a repeat. Resend is told the job's idempotency key, and
//     sends once. SES has neither.
//   - Nothing is sent twice. The one repeat is over a kept connection that was
//     closed before it took anything of the message: with SMTP a sender, with
//     HTTP a byte.
//   - Nothing in a message can add a header or a recipient to it.
//   - Errors never hold a password or a key, nor what a server says about one.
package email
