package lifecycle

import "errors"

// ErrNoJob reports that the queue knows no such job: it never did, or the job was completed
// and its Retention is over, or it was deleted.
var ErrNoJob = errors.New("no such job")
