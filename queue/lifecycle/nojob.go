package lifecycle

import "errors"

// ErrNoJob reports that the queue does not know the job: it never existed, it was
// deleted, or it was completed and its Retention is over.
var ErrNoJob = errors.New("no such job")
