package lifecycle

import (
	"fmt"
	"time"
)

// Progress is how far a call has come, as its handler has reported it.
type Progress struct {
	Percent int       // 0 to 100
	Text    string    // "" or a few words
	At      time.Time // by the clock of Redis
}

// String returns it as on the command line: "40 %: page 4 of 10".
func (p Progress) String() string {
	if p.Text == "" {
		return fmt.Sprintf("%d %%", p.Percent)
	}
	return fmt.Sprintf("%d %%: %s", p.Percent, p.Text)
}
