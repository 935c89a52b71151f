// Package worker builds a complete worker program around handlers of your own. The program
// reads its settings from the environment and from flags, puts a limits file in effect, serves
// the dashboard, the HTTP API, metrics and health checks, and finishes its calls when it is
// stopped. Headgate's own worker is built with this package.
//
//	func main() {
//		worker.Main(func(_ context.Context, p *worker.Program) error {
//			queue.Handle(p.Worker, SendSMS, send)
//			return nil
//		})
//	}
//
// [Main] is the main function of such a program, with the commands config and healthcheck.
// [Run] runs one inside a larger program. [queue.New] makes a worker without any of this.
package worker
