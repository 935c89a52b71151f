package store

import (
	_ "embed"
	"strings"

	"github.com/headgate/headgate/internal/rediskey"
	"github.com/headgate/headgate/queue/limits"
	"github.com/headgate/headgate/throttle"
)

// Lane is the content of a lane's name. All texts are escaped.
type Lane struct {
	Name, Tenant, Kind string
	Attributes         [][2]string
	Group              string // of its tenant, which the name does not say; "": none
}

// Value returns the lane's value of an attribute that limits have in `per`; "" if it has
// none.
func (l *Lane) Value(name string) string {
	switch name {
	case "tenant":
		return l.Tenant
	case limits.GroupAttribute:
		return l.Group
	}
	for _, attr := range l.Attributes {
		if attr[0] == name {
			return attr[1]
		}
	}
	return ""
}

// ParseLane reads a lane's name.
func ParseLane(name string) Lane {
	l := Lane{Name: name}
	var rest string
	l.Tenant, rest, _ = strings.Cut(name, ";")
	l.Tenant = plain(l.Tenant)
	for rest != "" {
		var part string
		part, rest, _ = strings.Cut(rest, ";")
		if attr, value, ok := strings.Cut(part, "="); ok {
			l.Attributes = append(l.Attributes, [2]string{attr, plain(value)})
		}
	}
	l.Kind = l.Value("kind")
	return l
}

// Holds reports whether a limit can hold a lane: one per group holds tenants that have one.
func Holds(limit limits.Limit, l *Lane) bool { return l.Group != "" || !limit.PerGroup() }

// BucketKey returns the key of a limit's bucket for a lane, as in lanes.lua.
func BucketKey(queue string, limit limits.Limit, l *Lane) string {
	name := append(make([]byte, 0, 96), "headgate:{"...)
	kind := "}:b:"
	if limit.Algorithm == throttle.Concurrency {
		kind = "}:permits:"
	}
	name = append(append(name, queue...), kind...)
	name = append(append(name, limit.Name...), ':')
	for i, attr := range limit.Per {
		if i > 0 {
			name = append(name, ';')
		}
		name = append(name, l.Value(attr)...)
	}
	return string(name)
}

// plain escapes a name that may be escaped already, as in formats.lua: a group of asynq's
// own client can have any name.
func plain(name string) string {
	if !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZ._~@-%", c)
	}) {
		return name // thousands of lanes are read for a forecast
	}
	parts := strings.Split(name, "%")
	for i, part := range parts {
		parts[i] = rediskey.Escape(part)
	}
	return strings.Join(parts, "%")
}

// BandScores is the distance between a lane's scores of one priority and those of the
// next.
const BandScores = 1 << 51
