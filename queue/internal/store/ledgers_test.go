package store

import "testing"

// TestReadLedgers: what has no list of limits is not taken for one without limits, or all that is leased could be leased
// again.
func TestReadLedgers(t *testing.T) {
	for text, understood := range map[string]bool{
		``: true, `{"limits":{}}`: true,
		`{}`: false, `{"day":{"Spec":{},"Ledger":{}}}`: false, `null`: false, `[]`: false, `{"limits":{}`: false,
	} {
		all, err := ReadLedgers(text)
		if (err == nil) != understood || understood && all.Of == nil {
			t.Errorf("%q: %+v, %v; want it understood: %t", text, all, err, understood)
		}
	}
}
