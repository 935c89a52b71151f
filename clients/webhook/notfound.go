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

// notFound is what 404 means: the receiver may be in the middle of a deployment. The
// job is tried again without spending attempts, at first after seconds and then after
// as long as it has lasted, up to 5 minutes, until Config.RetryNotFound has passed
// since its first attempt. After that, or when nobody knows the first attempt, 404 is
// permanent.
func (s *Sender) notFound(call clients.Call, err error) error {
	if s.config.RetryNotFound < 0 || call.First.IsZero() {
		return clients.Permanent(err)
	}
	now := s.now()
	lasted := max(now.Round(0).Sub(call.First.Round(0)), 0) // of the wall clock: First is of another process
	left := s.config.RetryNotFound - lasted
	if left <= 0 {
		return clients.Permanent(fmt.Errorf("%w; it was tried for %v", err, lasted.Round(time.Second)))
	}
	pause := min(max(lasted, firstNotFoundPause), maxNotFoundPause, left)
	return clients.RepeatAt(now.Add(pause), fmt.Errorf("%w; it is tried again until %s", err, now.Add(left).UTC().Format(time.RFC3339)))
}
