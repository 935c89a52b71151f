package store

import (
	"strconv"

	"github.com/headgate/headgate/queue/lifecycle"
)

// ReadAnswers returns the calls of all workers by their answer, from the fields of
// headgate:{queue}:totals, and their sum.
func ReadAnswers(totals map[string]string) (answers map[lifecycle.Answer]int64, calls int64) {
	answers = map[lifecycle.Answer]int64{}
	for _, a := range lifecycle.Answers() {
		if n, err := strconv.ParseInt(totals["answer:"+string(a)], 10, 64); err == nil && n > 0 {
			answers[a] = n
			calls += n
		}
	}
	return answers, calls
}
