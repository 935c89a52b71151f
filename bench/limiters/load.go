package main

import "fmt"

// load is what all contenders are put under alike.
type load struct {
	Goroutines int  `json:"goroutines"`
	Keys       int  `json:"keys"`
	Refusing   bool `json:"refusing"` // nearly everything is refused, else everything admitted
}

var (
	alone        = load{Goroutines: 1, Keys: 1}
	alone10k     = load{Goroutines: 1, Keys: 10_000}
	many         = load{Goroutines: 64, Keys: 1}
	many10k      = load{Goroutines: 64, Keys: 10_000}
	aloneRefused = load{Goroutines: 1, Keys: 1, Refusing: true}
	manyRefused  = load{Goroutines: 64, Keys: 1, Refusing: true}

	loads = []load{alone, alone10k, many, many10k, aloneRefused, manyRefused}
)

func (l load) String() string {
	text := fmt.Sprintf("%d goroutine%s, %d key%s", l.Goroutines, plural(l.Goroutines), l.Keys, plural(l.Keys))
	if l.Refusing {
		text += ", refused"
	}
	return text
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
