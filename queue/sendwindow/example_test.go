package sendwindow_test

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/queue/sendwindow"
)

// Calls go in office hours, in Berlin time.
func ExampleWindow_OpenAt() {
	window, err := sendwindow.Parse("Mon-Fri 09:00-18:00, Sat 10:00-14:00 Europe/Berlin")
	if err != nil {
		panic(err)
	}
	limits := limits.Set{
		Queues: map[string]limits.Queue{
			"sms": {Kinds: []string{"sms"}, SendWindows: map[string]sendwindow.Window{"sms": window}},
		},
		Tenants: map[string]limits.Tenant{"acme": {SendWindow: window}},
	}
	fmt.Println(limits.Validate())

	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	for _, text := range []string{"2026-03-06 12:00", "2026-03-06 18:00", "2026-03-07 15:00"} {
		at, err := time.ParseInLocation("2006-01-02 15:04", text, berlin)
		if err != nil {
			panic(err)
		}
		fmt.Println(at.Format("Mon 15:04"), "->", window.OpenAt(at).In(berlin).Format("Mon 15:04"))
	}
	// Output:
	// <nil>
	// Fri 12:00 -> Fri 12:00
	// Fri 18:00 -> Sat 10:00
	// Sat 15:00 -> Mon 09:00
}
