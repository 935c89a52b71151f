package store

import (
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/queue/lifecycle"
)

// ProgressOf decodes hg_progress of a job whose hg_owner is owner. It returns nil if the run
// that holds the job has reported nothing.
func ProgressOf(owner, text string) *lifecycle.Progress {
	words := strings.SplitN(text, " ", 4)
	if len(words) < 4 || words[0] != owner {
		return nil
	}
	percent, err := strconv.Atoi(words[1])
	at, err2 := strconv.ParseInt(words[2], 10, 64)
	if err != nil || err2 != nil {
		return nil
	}
	return &lifecycle.Progress{Percent: percent, Text: words[3], At: time.UnixMicro(at)}
}
