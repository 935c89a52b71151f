// Package email sends mail over SMTP.
//
// A [Sender] hands one [Message] to one mail server and says what came of it;
// package clients has the words. What always holds:
//
//   - A message goes to all of its recipients or to none: the first that the
//     server refuses refuses the message.
//   - The Message-ID is the same over all attempts of a job, so that receivers
//     can tell a repeat.
//   - Nothing is sent twice. The one repeat is over a kept connection that the
//     server had closed, before it accepted a sender.
//   - Nothing in a message can add a header or a recipient to it.
//   - Errors never hold a password, nor what the server says about one.
package email
