package conformance

import "encoding/binary"

// A window is kept as varints: of each call the µs since the one before, which may be less than 0, and what it took.
// Calls of one permit, which most are, have it in the last bit of the first number. A call that takes nothing is the moment
// before which calls are joined.

// writeCalls returns the text of calls that follow one at last, and the moment of the last of them.
func writeCalls(last int64, calls []Call) (text []byte, end int64) {
	for _, c := range calls {
		since, many := (c.At-last)<<1, int64(1)
		if c.N == 1 {
			many = 0
		}
		text = binary.AppendVarint(text, since|many)
		if many == 1 {
			text = binary.AppendVarint(text, c.N)
		}
		last = c.At
	}
	return text, last
}

// readCalls reads such a text, and returns false if it is none.
func readCalls(text []byte) (calls []Call, ok bool) {
	number := func() int64 {
		n, size := binary.Varint(text)
		ok = ok && size > 0
		text = text[max(size, 0):]
		return n
	}
	ok = true
	for last := int64(0); ok && len(text) > 0; {
		since := number()
		c := Call{At: last + since>>1, N: 1}
		if since&1 == 1 {
			c.N = number()
		}
		calls, last = append(calls, c), c.At
	}
	return calls, ok
}
