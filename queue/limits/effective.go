package limits

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/throttle"
)

// Effective is a limit as it holds for one tenant, or for all.
type Effective struct {
	Name      string
	Per       []string
	Unit      string
	Queues    []string // of a budget: the queues that share it
	For       Side     // the calls that it holds
	Algorithm throttle.Algorithm

	Rate        string // as in the limits file; "" for a concurrency
	Burst       int64  // 0: the algorithm has none
	Capacity    int64  // of a leaky bucket; 0: any
	Concurrency int64
	Ramp        *Ramp // nil: the rate is the same from the beginning

	From   string    // "queue", "tenant" (or its plan or group), or "override"
	Until  time.Time // of an override; zero: until it is cleared
	Actor  string    // of an override
	Reason string    // of an override

	// NotInEffect says which override of the tenant does not fit the limit, and why:
	// limits were published since that it cannot be made of. "": there is none.
	NotInEffect string
}

// String is the limit in a few words, for the audit and for people. Of a limit that is
// not there any more it is "none".
func (f Effective) String() string {
	if f.Rate == "" && f.Concurrency == 0 {
		return "none"
	}
	if f.Rate == "" {
		return fmt.Sprintf("%d at once", f.Concurrency)
	}
	text := f.Rate
	if f.Burst > 0 {
		text += fmt.Sprintf(", burst %d", f.Burst)
	}
	if f.Capacity > 0 {
		text += fmt.Sprintf(", capacity %d", f.Capacity)
	}
	if f.Ramp != nil {
		text += ", " + f.Ramp.String()
	}
	return text
}
