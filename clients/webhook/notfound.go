package webhook

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/clients"
)

const (
	retryNotFound      = time.Hour
	firstNotFoundPause = 5 * time.Second
	maxNotFoundPause   = 5 * time.Minute
)

// notFound returns what a 404 means: the receiver may be in the middle of a deployment. The job
// is retried without spending attempts until Config.RetryNotFound has passed since its first
// attempt. The pause is the time since the first attempt, but at least 5 seconds and at most 5
// minutes. After that, or if the time of the first attempt is unknown, 404 is permanent.
func (s *Sender) notFound(call clients.Call, err error) error {
	if s.config.RetryNotFound < 0 || call.First.IsZero() {
		return clients.Permanent(err)
	}
	now := s.now()
	lasted := max(now.Round(0).Sub(call.First.Round(0)), 0) // by the wall clock, because First is from another process
	left := s.config.RetryNotFound - lasted
	if left <= 0 {
		return clients.Permanent(fmt.Errorf("%w; it was retried for %v", err, lasted.Round(time.Second)))
	}
	pause := min(max(lasted, firstNotFoundPause), maxNotFoundPause, left)
	return clients.RepeatAt(now.Add(pause), fmt.Errorf("%w; it is retried until %s", err, now.Add(left).UTC().Format(time.RFC3339)))
}
