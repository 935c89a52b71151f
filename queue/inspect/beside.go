package inspect

import (
	"slices"
	"strings"

	"github.com/headgate/headgate/queue/internal/store"
	"github.com/headgate/headgate/queue/limits"
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

// levelOf returns the bucket whose level an adaptive limit has: if the limit is the part of another one for one side, that
// of the other one. See whole_of in lanes.lua.
func (f *forecast) levelOf(limit limits.Limit, bucket string) string {
	for _, whole := range f.rules.Limits {
		if limit.For != limits.Both && whole.Adaptive && whole.For == limits.Both && whole.Name+"-"+string(limit.For) == limit.Name && slices.Equal(whole.Per, limit.Per) {
			return store.Key(f.queue, "b:"+whole.Name+strings.TrimPrefix(bucket, store.Key(f.queue, "b:"+limit.Name)))
		}
	}
	return bucket
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
				if limit.Adaptive {
					bucket = f.levelOf(limit, bucket)
				}
				keys = append(keys, f.keyBeside(what, bucket))
			}
		}
	}
	return keys
}
