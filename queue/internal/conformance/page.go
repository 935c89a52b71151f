package conformance

import "encoding/binary"

// A queue's arrivals are kept in pages: each has the calls that became known in an hour or less, so that old ones can be
// dropped. A page is a list of calls as varints:
//
//	lane      its number in the order of their first calls, doubled, and 1 if what it took follows. A number that is
//	          new is followed by the length of its name and the name, for a call without a job behind a space
//	left      the ms since the call before left, which may be less than 0
//	waited    1 more than the ms for which it waited; 0: it is not the first call of a job
//	took      if not one permit: its number among these, as of lanes, of "COST;unit=n;…", behind a "-" if it was given
//	          back
const (
	pageBytes = 256 << 10
	pageLasts = 3600 * 1000      // ms
	maxPages  = 32               // with more calls, a trial of them would take more memory than a worker has to spare
	keepsDay  = 24 * 3600 * 1000 // ms: calls of how long ago are kept
)

// pages are the pages of a queue, of which calls are added to the last.
type pages struct {
	all   []int64 // by when they began, Unix ms, ascending
	size  int     // bytes of the last page
	lanes map[string]uint64
	costs map[string]uint64
	left  int64 // when the call that was added last left, Unix ms
}

// add adds calls, and returns the writes of conformance.lua that keep them. now is Unix ms.
func (p *pages) add(calls []call, now int64) (writes []any) {
	lasts := any("")
	if n := len(p.all); n == 0 || p.size >= pageBytes || now >= p.all[n-1]+pageLasts {
		if n > 0 {
			now = max(now, p.all[n-1]+1)
		}
		p.all = append(p.all, now)
		p.size, p.left, p.lanes, p.costs = 0, 0, map[string]uint64{}, map[string]uint64{}
		lasts = (keepsDay + 2*pageLasts) / 1000
	}
	var text []byte
	for i := range calls {
		text = p.append(text, &calls[i])
	}
	p.size += len(text)
	writes = append(writes, "page", p.all[len(p.all)-1], text, lasts)
	for len(p.all) > maxPages || len(p.all) > 1 && p.all[1] < now-keepsDay {
		writes = append(writes, "drop", p.all[0], "", "")
		p.all = p.all[1:]
	}
	return writes
}

func (p *pages) append(text []byte, c *call) []byte {
	took, name := c.Took.text(), c.lane.Name
	if c.direct {
		name = " " + name
	}
	more := uint64(0)
	if took != "1" {
		more = 1
	}
	lane, known := number(p.lanes, name)
	text = binary.AppendUvarint(text, lane<<1|more)
	if !known {
		text = append(binary.AppendUvarint(text, uint64(len(name))), name...)
	}
	left := c.at / 1000
	text = binary.AppendVarint(text, left-p.left)
	text = binary.AppendUvarint(text, uint64(c.waited+1))
	if p.left = left; more == 0 {
		return text
	}
	of, known := number(p.costs, took)
	text = binary.AppendUvarint(text, of)
	if !known {
		text = append(binary.AppendUvarint(text, uint64(len(took))), took...)
	}
	return text
}

// number returns the number of a name in the order in which names first came.
func number(of map[string]uint64, name string) (n uint64, known bool) {
	n, known = of[name]
	if !known {
		n = uint64(len(of))
		of[name] = n
	}
	return n, known
}
