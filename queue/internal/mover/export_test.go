package mover

import "time"

func init() { tryAgain = 5 * time.Millisecond }
