package store

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/queue/lifecycle"
)

// ReadLog reads hg_log (record.lua), the oldest event first. It skips lines that it
// cannot read.
func ReadLog(text string) []lifecycle.Event {
	var events []lifecycle.Event
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 7)
		fields = append(fields, make([]string, 7-len(fields))...)
		at, err := strconv.ParseUint(fields[0], 10, 53)
		if err != nil || fields[1] == "" || !utf8.ValidString(line) {
			continue
		}
		e := lifecycle.Event{At: time.UnixMicro(int64(at)), What: fields[1], Limit: fields[3], Answer: lifecycle.Answer(fields[5]), Detail: fields[6]}
		if n, err := strconv.ParseUint(fields[2], 10, 31); err == nil {
			e.Attempt = int(n)
		}
		if until, err := strconv.ParseUint(fields[4], 10, 53); err == nil && until > 0 {
			e.Until = time.UnixMicro(int64(until))
		}
		events = append(events, e)
	}
	return events
}
