package queue

import (
	"time"
)

var processStart = time.Now()
