package throttle

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/limitlua"
)

// Rate says how fast: Count permits in every Period, or in every calendar month.
//
// Its text form is "COUNT/PERIOD", such as "300/s", "10000/day", "1/90s", "5/100ms" or
// "300000/month". The zero Rate is not valid.
type Rate struct {
	Count  int64         // permits, >= 1
	Period time.Duration // whole µs, >= 1 µs; 0 when Months is set
	Months int           // 0 or 1: permits per calendar month, only for [FixedWindow] with a Location
}

// PerSecond returns the rate of n permits a second. It does not validate n.
func PerSecond(n int64) Rate { return Rate{Count: n, Period: time.Second} }

const day = 24 * time.Hour

var periods = map[string]time.Duration{
	"ms": time.Millisecond,
	"s":  time.Second, "sec": time.Second, "second": time.Second,
	"m": time.Minute, "min": time.Minute, "minute": time.Minute,
	"h": time.Hour, "hour": time.Hour,
	"d": day, "day": day,
	"week": 7 * day,
}

// maxPeriod keeps every moment and product of the scripts far below 2^53 µs.
const maxPeriod = 366 * day

// ParseRate parses the text form of a [Rate] and validates it. The error is a [FieldError]
// that quotes the text.
func ParseRate(text string) (Rate, error) {
	wrong := func(format string, args ...any) (Rate, error) {
		return Rate{}, &FieldError{Field: "rate", Reason: strconv.Quote(clip(text)) + fmt.Sprintf(format, args...)}
	}
	count, period, found := strings.Cut(strings.TrimSpace(text), "/")
	if !found {
		return wrong(" must be COUNT/PERIOD, such as 300/s, 10000/day or 1/90s")
	}
	n, err := strconv.ParseInt(strings.TrimSpace(count), 10, 64)
	if err != nil {
		return wrong(": %q is not a whole number of permits", clip(count))
	}
	rate := Rate{Count: n}
	period = strings.TrimSpace(period)
	switch named, ok := periods[period]; {
	case ok:
		rate.Period = named
	case period == "month":
		rate.Months = 1
	default:
		if rate.Period, err = time.ParseDuration(period); err != nil {
			return wrong(": period %q must be s, min, h, day, week, month or a duration such as 90s", clip(period))
		}
	}
	if fault := rate.fault(); fault != "" {
		return wrong(": %s", fault)
	}
	return rate, nil
}

// Validate returns a [FieldError] if the rate is not valid. A valid rate is 1 per 366 days to
// 1,000,000 per second, or a count per calendar month.
func (r Rate) Validate() error {
	if fault := r.fault(); fault != "" {
		return &FieldError{Field: "rate", Reason: fault}
	}
	return nil
}

// fault returns what is wrong with the rate; "" if nothing is.
func (r Rate) fault() string {
	switch {
	case r == Rate{}:
		return "required: COUNT/PERIOD, such as 300/s, 10000/day or 1/90s"
	case r.Count < 1:
		return fmt.Sprintf("its count must be at least 1, not %d", r.Count)
	case r.Months == 1 && r.Period == 0:
		return ""
	case r.Months != 0:
		return "months must be 0, or 1 without a period"
	case r.Period <= 0:
		return "its period must be longer than 0"
	case r.Period%time.Microsecond != 0:
		return "its period must be whole microseconds"
	case r.Period > maxPeriod:
		return fmt.Sprintf("its period is longer than %v", maxPeriod)
	case float64(r.Count)/r.Period.Seconds() > 1e6:
		return "more than 1,000,000/s, finer than the clock of Redis"
	}
	return ""
}

// String returns the shortest text that parses to the same rate.
func (r Rate) String() string {
	if r.Months != 0 {
		return fmt.Sprintf("%d/month", r.Count)
	}
	switch r.Period {
	case time.Millisecond:
		return fmt.Sprintf("%d/ms", r.Count)
	case time.Second:
		return fmt.Sprintf("%d/s", r.Count)
	case time.Minute:
		return fmt.Sprintf("%d/min", r.Count)
	case time.Hour:
		return fmt.Sprintf("%d/h", r.Count)
	case day:
		return fmt.Sprintf("%d/day", r.Count)
	case 7 * day:
		return fmt.Sprintf("%d/week", r.Count)
	}
	return fmt.Sprintf("%d/%v", r.Count, r.Period)
}

// MarshalText returns the text form. The error is always nil.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses the text form. Errors are those of [ParseRate], and leave the rate
// as it is.
func (r *Rate) UnmarshalText(text []byte) error {
	parsed, err := ParseRate(string(text))
	if err != nil {
		return err
	}
	*r = parsed
	return nil
}

// units returns the rate as the scripts count it.
func (r Rate) units() (p, flow int64) { return limitlua.Units(r.Count, r.Period) }

// exact is the largest integer below which every whole number is a Lua number.
const exact = 1 << 53

// fits reports whether n permits can be counted without leaving exact integers.
func (r Rate) fits(n int64) bool {
	if r.Months != 0 {
		return n < exact
	}
	p, flow := r.units()
	return float64(n)*float64(p)+float64(flow) < exact && float64(n)*float64(p)/float64(flow) < math.MaxInt32*1e6
}

// clip keeps a hostile text from filling an error message.
func clip(text string) string {
	const maxBytes = 60
	if len(text) > maxBytes {
		return strings.ToValidUTF8(text[:maxBytes], "") + "…"
	}
	return text
}
