package clients

import "time"

// Quota is a limit of an account as its provider told it last.
type Quota struct {
	Name      string    // the provider's, such as "requests" or "input-tokens"
	Limit     int64     // what it holds when it is full; 0: it did not say
	Remaining *int64    // nil: it did not say
	ResetsAt  time.Time // when it is full again, by this machine's clock; zero: it did not say
}
