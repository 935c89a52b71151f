package inspect

import (
	"strings"

	"github.com/headgate/headgate/queue/internal/store"
)

// What a limit keeps beside each of its buckets, as in lanes.lua.
const (
	ofAdaptive = "adapt:"
	ofRamp     = "ramp:"
)

// keyBeside returns the key of what is kept beside a bucket.
func (f *forecast) keyBeside(what, bucket string) string {
	return store.Key(f.queue, what+strings.TrimPrefix(bucket, store.Key(f.queue, "b:")))
}

// keysBeside returns the keys of what is kept beside buckets.
func (f *forecast) keysBeside(buckets []string) (keys []string) {
	for _, limit := range f.rules.Limits {
		what := ""
		switch {
		case limit.Ramp != nil:
			what = ofRamp
		case limit.Adaptive:
			what = ofAdaptive
		default:
			continue
		}
		prefix := store.Key(f.queue, "b:"+limit.Name+":")
		for _, bucket := range buckets {
			if strings.HasPrefix(bucket, prefix) {
				keys = append(keys, f.keyBeside(what, bucket))
			}
		}
	}
	return keys
}
