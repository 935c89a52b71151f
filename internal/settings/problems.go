package settings

import "fmt"

// Problems are the invalid settings of a program.
type Problems []error

// Wrong adds the problem of one setting, under the name of its variable.
func (p *Problems) Wrong(name, format string, args ...any) {
	*p = append(*p, fmt.Errorf(Prefix+name+": "+format, args...))
}
